"""What the front page tells of buckets: sums and a table. A fixed number of queries, none over all blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum
from django.utils.safestring import SafeString

from engine.scheduling.model import JobState
from webadmin.console import formatting as show
from webadmin.console.sections import Table
from webadmin.database import dialect
from webadmin.tsdb.models import BlockQuarantine, Bucket, BucketTenant, OutboxStep, Part
from webadmin.tsdb.states import GroupState

BUCKETS_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketStanding:
    """Where one bucket is: ``waiting`` blocks are to be merged by ``compactions``, jobs of open groups by state.

    ``refused`` are its tenants of which nothing is planned for another reason than an operator's or their owner's wish,
    ``failing_writes`` the steps of the outbox that the bucket has refused so far.
    """

    bucket: Bucket
    tenants: int
    refused: int
    waiting: int
    compactions: int
    running: int
    queued: int
    parked: int
    kept_out: int
    to_write: int
    failing_writes: int


def bucket_standings() -> list[BucketStanding]:
    """Return where each bucket is, by name."""
    buckets = list(Bucket.objects.order_by("name"))
    if not buckets:
        return []
    is_refused = ~Q(refusal="") & Q(is_deleted=False, bucket__is_paused=False)
    tenants = _by_bucket(
        BucketTenant.objects.all(),
        "bucket_id",
        count=Count("id"),
        refused=Count("id", filter=is_refused),
        waiting_sum=Sum("waiting"),
        compactions_sum=Sum("compactions"),
    )
    steps = _by_bucket(
        OutboxStep.objects.filter(done_at_ms=None),
        "tenant__bucket_id",
        count=Count("id"),
        failing=Count("id", filter=~Q(last_error="")),
    )
    kept_out = _by_bucket(
        BlockQuarantine.objects.filter(released_at_ms=None), "block__tenant__bucket_id", count=Count("id")
    )
    jobs: defaultdict[int, dict[str, int]] = defaultdict(dict)
    parts = Part.objects.filter(group__state=GroupState.OPEN).order_by()
    for row in parts.values("group__tenant__bucket_id", "job__state").annotate(count=Count("id")):
        jobs[row["group__tenant__bucket_id"]][row["job__state"]] = row["count"]
    return [
        BucketStanding(
            bucket=bucket,
            tenants=tenants[bucket.id].get("count", 0),
            refused=tenants[bucket.id].get("refused", 0),
            waiting=tenants[bucket.id].get("waiting_sum", 0),
            compactions=tenants[bucket.id].get("compactions_sum", 0),
            running=jobs[bucket.id].get(JobState.LEASED.value, 0),
            queued=jobs[bucket.id].get(JobState.WAITING.value, 0),
            parked=jobs[bucket.id].get(JobState.PARKED.value, 0),
            kept_out=kept_out[bucket.id].get("count", 0),
            to_write=steps[bucket.id].get("count", 0),
            failing_writes=steps[bucket.id].get("failing", 0),
        )
        for bucket in buckets
    ]


def _by_bucket(rows: QuerySet[Any], key: str, **sums: Any) -> defaultdict[int, dict[str, int]]:
    found: defaultdict[int, dict[str, int]] = defaultdict(dict)
    found.update({row[key]: row for row in rows.order_by().values(key).annotate(**sums)})
    return found


def buckets_table(standings: Sequence[BucketStanding]) -> Table:
    """Return the buckets with what is left to do in each."""
    now_ms = dialect.clock_ms()
    more = len(standings) - BUCKETS_SHOWN
    return Table(
        title="Buckets of Prometheus blocks",
        headers=(
            *("Bucket", "State", "Last scan", "Tenants", "Blocks that wait", "Compactions to catch up"),
            *("Jobs", "Kept out", "To write"),
        ),
        rows=[
            (
                show.row_link(one.bucket, show.name(one.bucket.name)),
                _state(one),
                show.age(one.bucket.scanned_at_ms, now_ms),
                show.count_text(one.tenants),
                show.count_text(one.waiting),
                show.count_text(one.compactions),
                f"{show.count_text(one.running)} running, {show.count_text(one.queued)} waiting, "
                f"{show.count_text(one.parked)} parked",
                show.count_text(one.kept_out),
                show.count_text(one.to_write),
            )
            for one in standings[:BUCKETS_SHOWN]
        ],
        more=show.link(show.list_address(Bucket), f"{more} more") if more > 0 else "",
    )


def _state(one: BucketStanding) -> SafeString:
    if one.bucket.scan_error:
        return show.badge("no answer", "bad", one.bucket.scan_error)
    if one.bucket.is_paused:
        return show.badge("paused", "warn")
    if one.failing_writes:
        return show.badge("refuses writes", "bad")
    if one.compactions or one.to_write:
        return show.badge("compacting", "busy")
    return show.badge("caught up", "good") if one.bucket.scanned_at_ms else show.badge("not scanned yet", "quiet")
