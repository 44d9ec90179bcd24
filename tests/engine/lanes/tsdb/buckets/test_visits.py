"""Who else works on a tenant, and until when that holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.lanes.tsdb.buckets.layout import block_key
from engine.lanes.tsdb.buckets.visits import ForeignVisit, fresh_foreign_markers
from engine.storage import open_store
from tests.engine.lanes.tsdb.buckets.bucket import Bucket, ulid_of

ULID = ulid_of(1)


@pytest.fixture
def cortex(tmp_path: Path) -> Bucket:
    """A bucket of Cortex with one block."""
    bucket = Bucket(open_store(str(tmp_path)), "cortex")
    bucket.put_block(1)
    return bucket


def now_of(bucket: Bucket) -> int:
    """The time by the store's clock."""
    return int(max(info.modified_at for info in bucket.store.list()))


def visits(bucket: Bucket, now: float, **options: object) -> tuple[ForeignVisit, ...]:
    return fresh_foreign_markers(
        bucket.store,
        bucket.layout,
        bucket.folder,
        [ULID, ulid_of(2)],
        now_s=now,
        **options,  # type: ignore[arg-type]
    )


def put_visit(bucket: Bucket, key: str, time_s: int, **more: object) -> str:
    document = {"compactorID": "compactor-3", "visitTime": time_s, "version": 1} | more
    bucket.store.put(key, json.dumps(document).encode())
    return key


@pytest.mark.parametrize(("age", "is_fresh"), [(0, True), (599, True), (600, False), (-60, True)])
def test_a_marker_of_a_block_expires_after_ten_minutes(cortex: Bucket, age: int, is_fresh: bool) -> None:
    now = now_of(cortex)
    key = put_visit(cortex, block_key(cortex.folder, ULID, "visit-mark.json"), now - age)
    found = visits(cortex, now)
    assert bool(found) == is_fresh
    if is_fresh:
        (visit,) = found
        assert (visit.key, visit.compactor, visit.until_s) == (key, "compactor-3", now - age + 600)
        assert str(visit) == f"compactor-3 visited {key}"


@pytest.mark.parametrize("status", ["pending", "inProgress", "completed", "failed"])
def test_a_marker_of_a_partition_counts_whatever_its_state(cortex: Bucket, status: str) -> None:
    now = now_of(cortex)
    key = f"{cortex.folder}partitioned-groups/visit-marks/4021/partition-0-visit-mark.json"
    put_visit(cortex, key, now - 100, status=status, partitionedGroupID=4021, partitionID=0)
    (visit,) = visits(cortex, now)
    assert (visit.status, visit.until_s) == (status, now + 500)
    assert visits(cortex, now + 500) == ()


def test_old_markers_of_partitions_are_not_even_read(cortex: Bucket) -> None:
    for number in range(20):
        key = f"{cortex.folder}partitioned-groups/visit-marks/1/partition-{number}-visit-mark.json"
        put_visit(cortex, key, now_of(cortex))
    later = now_of(cortex) + 86_400
    assert visits(cortex, later) == ()
    assert "get" not in cortex.store.usage.requests()


def test_our_own_markers_do_not_count(cortex: Bucket) -> None:
    now = now_of(cortex)
    put_visit(cortex, block_key(cortex.folder, ULID, "visit-mark.json"), now)
    assert visits(cortex, now, own=["compactor-3"]) == ()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"version":1}',
        b'{"version":1,"compactorID":"","visitTime":1}',
        b'{"version":9,"compactorID":"a","visitTime":1}',
        b'{"version":1,"compactorID":"a","visitTime":99999999999}',
    ],
)
def test_a_marker_that_cannot_be_read_counts_by_the_age_of_its_object(cortex: Bucket, data: bytes) -> None:
    cortex.store.put(block_key(cortex.folder, ULID, "visit-mark.json"), data)
    now = now_of(cortex)
    (visit,) = visits(cortex, now)
    assert (visit.compactor, bool(visit.fault)) == ("", True)
    assert now + 600 <= visit.until_s < now + 602
    assert visits(cortex, now + 602) == ()


def test_odd_names_among_the_markers_are_not_read(cortex: Bucket) -> None:
    for name in (
        "x",
        "1/partition-x-visit-mark.json",
        "a/partition-0-visit-mark.json",
        "1/2/partition-0-visit-mark.json",
    ):
        cortex.store.put(f"{cortex.folder}partitioned-groups/visit-marks/{name}", b"{")
    assert visits(cortex, now_of(cortex)) == ()


def test_thanos_knows_no_visits(tmp_path: Path) -> None:
    bucket = Bucket(open_store(str(tmp_path)), "thanos")
    bucket.put_block(1)
    put_visit(bucket, block_key("", ULID, "visit-mark.json"), now_of(bucket))
    assert visits(bucket, now_of(bucket)) == ()
