"""What the planner by interval is told of blocks and visits in a bucket."""

from __future__ import annotations

import pytest

from engine.planning.intervals.model import IntervalBlock, VisitMark
from engine.profiles.errors import BadObject
from engine.tsdb.buckets.as_planned import interval_block, visit_marks
from engine.tsdb.buckets.model import MarkKind
from engine.tsdb.buckets.visits import ForeignVisit
from tests.engine.tsdb.buckets.bucket import FILES, Bucket, ulid_of

PLACE = {
    "partitioned_group_id": 4021,
    "partition_count": 4,
    "partition_id": 3,
    "partitioned_group_creation_time": 1_700_000_000,
}


def planned(bucket: Bucket) -> IntervalBlock:
    scan = bucket.scan()
    (block,) = scan.appeared
    return interval_block(block, scan.known.marks)


def test_a_planner_is_told_what_meta_and_marks_say(bucket: Bucket) -> None:
    ulid = ulid_of(1)
    bucket.put_files(ulid)
    bucket.put_meta(
        ulid,
        compaction={"level": 2, "sources": [ulid_of(2), ulid_of(3)], "failed": True, "hints": ["from-out-of-order"]},
        stats={"numSeries": 7, "numTombstones": 3},
        thanos={"extensions": {"partition_info": PLACE, "time_range": 7_200_000}},
    )
    bucket.put_mark(ulid, MarkKind.NO_COMPACT)
    block = planned(bucket)
    assert (block.ulid, block.level, block.sources) == (ulid, 2, (ulid_of(2), ulid_of(3)))
    assert (block.min_time_ms, block.max_time_ms, block.series, block.tombstones) == (0, 7_200_000, 7, 3)
    assert (block.index_bytes, block.size_bytes) == (len(FILES["index"]), sum(map(len, FILES.values())))
    assert (block.partition, block.partitions, block.produced_by, block.time_range_ms) == (3, 4, 4021, 7_200_000)
    assert (block.no_compact, block.is_deleted, block.is_failed) == ("manual", False, True)
    assert block.hints == ("from-out-of-order",)
    assert block.uploaded_at_ms
    assert block.uploaded_at_ms > 1_600_000_000_000


def test_a_block_that_tells_no_origin_is_whole(bucket: Bucket) -> None:
    bucket.put_block(1)
    block = planned(bucket)
    assert (block.partition, block.partitions, block.produced_by, block.time_range_ms) == (0, 1, None, None)


@pytest.mark.parametrize("kind", MarkKind)
def test_a_mark_that_cannot_be_read_counts(bucket: Bucket, kind: MarkKind) -> None:
    ulid = bucket.put_block(1)
    bucket.put_mark(ulid, kind, data=b"{")
    block = planned(bucket)
    assert (bool(block.no_compact), block.is_deleted) == (kind is MarkKind.NO_COMPACT, kind is MarkKind.DELETION)


@pytest.mark.parametrize(
    "extensions",
    [
        {"partition_info": PLACE | {"partition_id": 4}},
        {"partition_info": PLACE | {"partition_count": 0}},
        {"partition_info": PLACE | {"partition_id": "0"}},
        {"partition_info": {"partition_id": 0}},
        {"partition_info": PLACE | {"partitioned_group_id": 1 << 32}},
        {"time_range": -1},
        {"time_range": True},
    ],
)
def test_a_block_that_lies_about_its_part_is_bad(bucket: Bucket, extensions: dict[str, object]) -> None:
    ulid = ulid_of(1)
    bucket.put_files(ulid)
    bucket.put_meta(ulid, thanos={"extensions": extensions})
    (bad,) = bucket.scan().bad
    with pytest.raises(BadObject, match=r"thanos\.extensions"):
        raise bad.error


@pytest.mark.parametrize("extensions", ["text", ["a"], {"of": "others"}, {"partition_info": "text"}])
def test_what_others_keep_among_the_extensions_is_their_own(bucket: Bucket, extensions: object) -> None:
    ulid = ulid_of(1)
    bucket.put_files(ulid)
    bucket.put_meta(ulid, thanos={"extensions": extensions})
    assert planned(bucket).partitions == 1


def test_visits_are_told_with_who_it_was() -> None:
    known = ForeignVisit(key="t/a", compactor="c-1", visited_at_s=5.5, until_s=605.5)
    unknown = ForeignVisit(key="t/b", compactor="", visited_at_s=6, until_s=606, fault="not JSON")
    assert visit_marks([known, unknown]) == [
        VisitMark(place="t/a", visitor="c-1", visited_at_ms=5500),
        VisitMark(place="t/b", visitor="who cannot be told", visited_at_ms=6000),
    ]
