"""Settings of a bucket in the form that planners and layouts take."""

from __future__ import annotations

import re

from engine.lanes.tsdb.buckets.layout import Layout, layout
from engine.lanes.tsdb.plan.policy import IntervalPolicy, check_ranges
from engine.schedule.errors import PolicyRefused
from webadmin.lanes.tsdb.models import Bucket

_UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_RANGE = re.compile(r"([1-9]\d{0,5})([mhd])")


def read_ranges(text: str) -> tuple[int, ...]:
    """Return lengths like ``2h,12h,24h`` in milliseconds. Raises PolicyRefused if they are invalid."""
    ranges = []
    for word in text.split(","):
        match = _RANGE.fullmatch(word.strip())
        if match is None:
            raise PolicyRefused(f"{word.strip()!r} is no length of an interval: write 30m, 2h or 1d")
        ranges.append(int(match[1]) * _UNITS_MS[match[2]])
    check_ranges(tuple(ranges))
    return tuple(ranges)


def policy_of(bucket: Bucket) -> IntervalPolicy:
    """Return the planning policy of a bucket. Raises PolicyRefused."""
    if bucket.readers_know_partitions and bucket.layout != "cortex":
        raise PolicyRefused("readers know partitions: only those of a Cortex with partitioning compaction do")
    return IntervalPolicy(
        ranges_ms=read_ranges(bucket.ranges),
        consistency_delay_ms=bucket.consistency_delay_seconds * 1000,
        partition_series=bucket.partition_series,
        partition_index_bytes=bucket.partition_index_bytes,
        replication=bucket.replication,
        allows_partitions=allows_partitions(bucket),
    )


def allows_partitions(bucket: Bucket) -> bool:
    """Return whether groups of a bucket may be split into partitions.

    Thanos always treats partitions of a group as duplicates of each other; Cortex does unless the bucket's settings say
    otherwise.
    """
    return bucket.layout == "cortex" and bucket.readers_know_partitions


def layout_of(bucket: Bucket) -> Layout:
    """Return the object layout of a bucket."""
    labels = tuple(label.strip() for label in bucket.replica_labels.split(",") if label.strip())
    return layout(bucket.layout, labels)
