"""What a scan finds, what it leaves alone, and what it costs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.core.errors import BadObject
from engine.lanes.tsdb.buckets.bucket_index import read_index
from engine.lanes.tsdb.buckets.layout import META, block_key
from engine.lanes.tsdb.buckets.marks import remove_mark
from engine.lanes.tsdb.buckets.model import KnownFolder, MarkKind
from engine.lanes.tsdb.buckets.publishing import update_index
from engine.lanes.tsdb.buckets.scan import scan_folder
from engine.lanes.tsdb.buckets.sections import origin
from engine.storage import ObjectStore, StorageError, open_store
from tests.engine.lanes.tsdb.buckets.bucket import FILES, Bucket, essence, ulid_of
from tests.faults.failing_store import FailingStore, Fault

DELETION, NO_COMPACT = MarkKind.DELETION, MarkKind.NO_COMPACT
STEADY = {"list": 2}
"""A listing of the blocks' folders; one of the marks (Cortex), or of all there is (Thanos)."""


def test_an_empty_bucket_is_nothing(bucket: Bucket) -> None:
    scan = bucket.scan()
    assert essence(scan.known) == essence(KnownFolder())
    assert (scan.appeared, scan.vanished, scan.ignored) == ((), (), 0)


def test_a_scanned_block_has_all_that_a_planner_needs(bucket: Bucket) -> None:
    ulid = bucket.put_block(1)
    (block,) = bucket.scan().appeared
    assert (block.folder, block.ulid, block.meta.ulid) == (bucket.folder, ulid, ulid)
    assert {file.name: file.size for file in block.files} == {name: len(data) for name, data in FILES.items()}
    assert block.size == sum(map(len, FILES.values()))
    assert block.meta_bytes == bucket.store.get(block_key(bucket.folder, ulid, META))
    assert block.uploaded_at_s == bucket.store.head(block_key(bucket.folder, ulid, META)).modified_at
    assert block.group_key == bucket.layout.group_key(block.meta)
    assert block.tenant == bucket.layout.tenant(bucket.folder, block.meta)


def test_blocks_appear_become_complete_and_vanish(bucket: Bucket) -> None:
    first, second = bucket.put_block(1), ulid_of(2)
    bucket.put_files(second)
    scan = bucket.scan()
    assert [block.ulid for block in scan.appeared] == [first]
    (partial,) = scan.partial
    assert (partial.ulid, partial.objects, partial.size) == (second, len(FILES), sum(map(len, FILES.values())))
    assert partial.age_s(partial.newest_at_s + 60) == 60
    assert scan.known.plannable() == {first}
    bucket.put_meta(second)
    scan = bucket.scan(scan.known)
    assert [block.ulid for block in scan.completed] == [second]
    assert (scan.appeared, scan.partial, scan.vanished) == ((), (), ())
    for info in list(bucket.store.list(block_key(bucket.folder, first, ""))):
        bucket.store.delete(info.key)
    scan = bucket.scan(scan.known)
    assert (scan.vanished, scan.known.complete) == ((first,), {second})


@pytest.mark.slow
@pytest.mark.parametrize("layout_name", ["cortex", "thanos"])
def test_a_scan_with_nothing_new_costs_the_same_whatever_there_is(any_store: ObjectStore, layout_name: str) -> None:
    bucket = Bucket(any_store, layout_name)
    known = KnownFolder()
    for last in (3, 30):
        for number in range(last):
            ulid = bucket.put_block(number)
            if number % 3 == 0:
                bucket.put_mark(ulid, DELETION)
                bucket.put_mark(ulid, NO_COMPACT)
        known = bucket.scan(known).known
        scan = bucket.scan(known)
        assert scan.requests == STEADY
        assert (scan.appeared, scan.new_marks, scan.known) == ((), (), known)
        assert len(known.complete) == last


def test_a_new_block_among_many_costs_two_requests(tmp_path: Path) -> None:
    bucket = Bucket(open_store(str(tmp_path)), "cortex")
    for number in range(30):
        bucket.put_block(number)
    scan = bucket.scan()
    assert scan.requests == {"list": 3, "get": 30}
    bucket.put_block(31)
    assert bucket.scan(scan.known).requests == {"list": 3, "get": 1}


def test_many_new_blocks_are_listed_together(bucket: Bucket) -> None:
    for number in range(30):
        bucket.put_files(ulid_of(number))
    known = bucket.scan().known
    assert len(known.partial) == 30
    assert bucket.scan(known).requests["list"] <= 3


def test_marks_keep_a_block_from_being_planned_and_go_again(bucket: Bucket) -> None:
    first, second, third = (bucket.put_block(number) for number in (1, 2, 3))
    bucket.put_mark(first, DELETION, 1_700_000_123)
    bucket.put_mark(second, NO_COMPACT)
    scan = bucket.scan()
    marks = scan.known.marks
    assert (marks[first, DELETION].time_s, marks[first, DELETION].details) == (1_700_000_123, "by hand")
    assert (marks[second, NO_COMPACT].reason, marks[second, NO_COMPACT].fault) == ("manual", "")
    assert scan.known.plannable() == {third}
    remove_mark(bucket.store, bucket.layout, bucket.folder, first, DELETION)
    scan = bucket.scan(scan.known)
    assert [mark.ulid for mark in scan.vanished_marks] == [first]
    assert scan.known.plannable() == {first, third}


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"version":2}', b"\xff", b'{"id":"x","version":1,"deletion_time":1}', b"[" * 100_000]
)
def test_a_mark_that_cannot_be_read_still_keeps_its_block(bucket: Bucket, data: bytes) -> None:
    first, second = bucket.put_block(1), bucket.put_block(2)
    bucket.put_mark(first, DELETION, data=data)
    scan = bucket.scan()
    assert "deletion-mark.json" in scan.known.marks[first, DELETION].fault
    assert scan.known.plannable() == {second}
    assert bucket.scan(scan.known).requests == STEADY


BAD_METAS = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"\xff\xfe", "not JSON"),
    (b"[" * 100_000, "not JSON"),
    (b"null", "not an object"),
    (b" " * ((16 << 20) + 1), "exceed the limit"),
]
PLACE = {"partitioned_group_id": 4021, "partition_count": 4, "partition_id": 3}
LIES = [
    *(
        ({"thanos": {"extensions": extensions}}, r"thanos\.extensions")
        for extensions in (
            {"partition_info": PLACE | {"partition_id": 4}},
            {"partition_info": PLACE | {"partition_count": 0}},
            {"partition_info": PLACE | {"partition_id": "0"}},
            {"partition_info": {"partition_id": 0}},
            {"partition_info": PLACE | {"partitioned_group_id": 1 << 32}},
            {"time_range": -1},
            {"time_range": True},
        )
    ),
    ({"ulid": ulid_of(99)}, "its ULID is"),
    ({"minTime": 7_200_000}, "is not before maxTime"),
    ({"minTime": 1.5}, "minTime"),
    ({"version": 2}, "version 2"),
    ({"compaction": {"level": "1"}}, r"compaction\.level"),
    ({"stats": {"numSamples": -1}}, r"stats\.numSamples"),
    ({"thanos": {"labels": ["a"]}}, r"thanos\.labels"),
    ({"thanos": {"downsample": {"resolution": "5m"}}}, "resolution"),
    ({"thanos": {"files": [{"rel_path": "index", "size_bytes": 1}]}}, "index.* meta.json states 1"),
    ({"thanos": {"files": [{"rel_path": "chunks/000009", "size_bytes": 1}]}}, "chunks/000009.*block lacks it"),
]


@pytest.mark.parametrize(("data", "reason"), BAD_METAS)
def test_an_undecodable_meta_is_reported_and_left_alone(bucket: Bucket, data: bytes, reason: str) -> None:
    _left_alone(bucket, reason, data=data)


@pytest.mark.parametrize(("changes", "reason"), LIES)
def test_a_meta_with_false_values_is_reported_and_left_alone(
    bucket: Bucket, changes: dict[str, object], reason: str
) -> None:
    _left_alone(bucket, reason, **changes)


@pytest.mark.parametrize(
    ("extensions", "place"),
    [
        ("text", None),
        (["a"], None),
        ({"of": "others", "partition_info": "text"}, None),
        ({"partition_info": PLACE, "time_range": 7_200_000}, (4021, 3, 4, 7_200_000)),
    ],
)
def test_extensions_give_the_origin_or_belong_to_others(
    bucket: Bucket, extensions: object, place: tuple[int, ...] | None
) -> None:
    ulid = ulid_of(1)
    bucket.put_files(ulid)
    bucket.put_meta(ulid, thanos={"extensions": extensions})
    (block,) = bucket.scan().appeared
    said = origin(block.meta)
    told = said.place and (said.place.group_id, said.place.partition, said.place.partitions, said.range_ms)
    assert told == place


def _left_alone(bucket: Bucket, reason: str, **meta: object) -> None:
    neighbours = {bucket.put_block(1), bucket.put_block(3)}
    ulid = ulid_of(2)
    bucket.put_files(ulid)
    bucket.put_meta(ulid, **meta)  # type: ignore[arg-type]
    before = bucket.contents()
    scan = bucket.scan()
    (bad,) = scan.bad
    assert isinstance(bad.error, BadObject)
    assert bad.error.object_name == f"{bucket.folder}{ulid}"
    with pytest.raises(BadObject, match=reason):
        raise bad.error
    assert scan.known.plannable() == neighbours
    assert bucket.contents() == before
    bucket.put_meta(ulid)
    assert [block.ulid for block in bucket.scan(scan.known).completed] == [ulid]


def test_a_block_without_its_index_is_bad(bucket: Bucket) -> None:
    ulid = bucket.put_block(1)
    bucket.store.delete(block_key(bucket.folder, ulid, "index"))
    (bad,) = bucket.scan().bad
    with pytest.raises(BadObject, match=r"index: the block has no such file"):
        raise bad.error


def test_names_that_are_no_blocks_are_counted_and_nothing_else(bucket: Bucket) -> None:
    ulid = bucket.put_block(1)
    for name in (
        "debug/x",
        "0000/x",
        "01ARZ3NDEKTSV4RRFFQ69G5FAI/meta.json",
        "8" * 26 + "/meta.json",
        "ü/x",
        "%2e%2e/x",
    ):
        bucket.store.put(f"{bucket.folder}{name}", b"{}")
    bucket.store.put(f"{bucket.folder}{ulid_of(9)}", b"an object with a block's name")
    for _ in range(2):
        scan = bucket.scan(deep=True)
        assert (scan.known.complete, scan.known.partial, scan.known.bad, scan.ignored) == ({ulid}, set(), set(), 6)


def test_odd_names_among_the_marks_are_counted(tmp_path: Path) -> None:
    bucket = Bucket(open_store(str(tmp_path)), "cortex")
    ulid = bucket.put_block(1)
    for name in ("x", f"{ulid}-", f"{ulid}-odd-mark.json", "not-a-ulid-deletion-mark.json", "a/b/c"):
        bucket.store.put(f"{bucket.folder}markers/{name}", b"{}")
    scan = bucket.scan()
    assert (scan.ignored, scan.known.marks, scan.is_tenant_deleted) == (5, {}, False)
    bucket.store.put(f"{bucket.folder}markers/tenant-deletion-mark.json", b"{}")
    assert bucket.scan(scan.known).is_tenant_deleted


def test_a_mark_of_a_block_that_is_gone_is_an_orphan(tmp_path: Path) -> None:
    bucket = Bucket(open_store(str(tmp_path)), "cortex")
    ulid = ulid_of(1)
    bucket.put_mark(ulid, DELETION)
    bucket.store.delete(block_key(bucket.folder, ulid, "deletion-mark.json"))
    (orphan,) = bucket.scan().orphan_marks
    assert orphan.ulid == ulid


@pytest.mark.parametrize("is_all_gone", [False, True])
def test_a_block_that_lost_its_meta_is_a_partial_upload_to_a_deep_scan(bucket: Bucket, is_all_gone: bool) -> None:
    ulid, other = bucket.put_block(1), bucket.put_block(2)
    known = bucket.scan().known
    bucket.store.delete(block_key(bucket.folder, ulid, META))
    if is_all_gone:
        for name in FILES:
            bucket.store.delete(block_key(bucket.folder, ulid, name))
    scan = bucket.scan(known, deep=True)
    assert (scan.vanished, scan.known.complete, scan.appeared) == ((ulid,), {other}, ())
    sizes = [(partial.ulid, partial.objects, partial.size) for partial in scan.partial]
    assert sizes == ([] if is_all_gone else [(ulid, len(FILES), sum(map(len, FILES.values())))])


def test_a_mark_in_the_block_alone_is_found_by_a_deep_scan_and_kept(tmp_path: Path) -> None:
    bucket = Bucket(open_store(str(tmp_path)), "cortex")
    ulid = bucket.put_block(1)
    known = bucket.scan().known
    bucket.put_mark(ulid, DELETION)
    bucket.store.delete(f"{bucket.folder}markers/{ulid}-deletion-mark.json")
    assert bucket.scan(known).known.plannable() == {ulid}
    deep = bucket.scan(known, deep=True).known
    assert deep.plannable() == set()
    assert bucket.scan(deep).known == deep


def test_deletion_marks_are_taken_from_an_index_younger_than_they_are(tmp_path: Path) -> None:
    bucket = Bucket(open_store(str(tmp_path)), "cortex")
    for number in range(10):
        bucket.put_mark(bucket.put_block(number), DELETION, 1_700_000_000 + number)
    fresh = bucket.scan()
    assert fresh.requests["get"] == 10 + 10  # blocks and marks; a folder does not count what was not there
    written = max(info.modified_at for info in bucket.store.list())
    update_index(bucket.store, bucket.layout, bucket.folder, now_s=written + 3600)
    shortened = bucket.scan()
    assert shortened.requests["get"] == 10 + 1
    times = {key: mark.time_s for key, mark in fresh.known.marks.items()}
    assert {key: mark.time_s for key, mark in shortened.known.marks.items()} == times
    # An index that may be older than the marks says nothing of them.
    update_index(bucket.store, bucket.layout, bucket.folder, now_s=written)
    assert bucket.scan().requests["get"] == 10 + 1 + 10


@pytest.mark.parametrize("data", [b"", b"no gzip", b"\x1f\x8b\x08\x00\x00\x00\x00\x00"])
def test_an_index_that_cannot_be_read_is_no_shortcut_and_no_obstacle(tmp_path: Path, data: bytes) -> None:
    bucket = Bucket(open_store(str(tmp_path)), "cortex")
    for number in range(3):
        bucket.put_mark(bucket.put_block(number), DELETION)
    bucket.store.put(bucket.layout.index_key(bucket.folder), data)
    assert len(bucket.scan().known.marks) == 3
    assert read_index(bucket.store, bucket.layout, bucket.folder) is None


@pytest.mark.parametrize("operation", ["get", "list"])
def test_a_block_that_the_store_does_not_give_is_tried_again(tmp_path: Path, operation: str) -> None:
    bucket = Bucket(open_store(str(tmp_path)), "cortex")
    sound, other = bucket.put_block(1), bucket.put_block(2)
    for number in range(10, 40):
        bucket.put_block(number)
    known = bucket.scan().known
    known = KnownFolder(complete=known.complete - {other})
    broken = FailingStore(bucket.store, Fault(operation, key_part=other, is_durable=True))
    scan = scan_folder(broken, bucket.layout, bucket.folder, known)
    (bad,) = scan.bad
    assert isinstance(bad.error, StorageError)
    assert sound in scan.known.plannable()
    assert [block.ulid for block in bucket.scan(scan.known).completed] == [other]


def test_a_mark_that_the_store_does_not_give_keeps_its_block_and_is_tried_again(bucket: Bucket) -> None:
    ulid = bucket.put_block(1)
    bucket.put_mark(ulid, DELETION)
    broken = FailingStore(bucket.store, Fault("get", key_part="deletion-mark"))
    scan = scan_folder(broken, bucket.layout, bucket.folder)
    assert (scan.known.plannable(), scan.known.marks[ulid, DELETION].time_s) == (set(), 0)
    assert bucket.scan(scan.known).known.marks[ulid, DELETION].time_s == 1_700_000_000


def test_a_folder_that_cannot_be_listed_is_an_error(bucket: Bucket) -> None:
    with pytest.raises(StorageError):
        scan_folder(FailingStore(bucket.store, Fault("list")), bucket.layout, bucket.folder)


OPERATIONS = ("files", "meta", "bad", "delete", "unmeta", "mark", "unmark", "no-compact", "mark-in-block", "scan")


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_scans_of_what_changed_add_up_to_a_scan_of_everything(
    bucket: Bucket, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    bucket = Bucket(open_store(str(tmp_path_factory.mktemp("history"))), bucket.layout.name)
    known, is_deep_needed = KnownFolder(), False
    complete: set[str] = set()
    steps = st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 5)), min_size=1, max_size=25)
    for operation, number in [*data.draw(steps), ("scan", 0)]:
        ulid = ulid_of(number)
        if operation == "scan":
            scan = bucket.scan(known, deep=is_deep_needed)
            complete = (complete | {block.ulid for block in (*scan.appeared, *scan.completed)}) - set(scan.vanished)
            known, is_deep_needed = scan.known, False
            assert complete == known.complete
            assert essence(known) == essence(bucket.scan().known)
        else:
            is_deep_needed |= _happens(bucket, operation, ulid)


def _happens(bucket: Bucket, operation: str, ulid: str) -> bool:
    """Change the bucket; tell whether only a deep scan is promised to see it."""
    folder = block_key(bucket.folder, ulid, "")
    has_meta = any(info.key == folder + META for info in bucket.store.list(folder))
    if operation == "files":
        bucket.put_files(ulid)
    elif operation == "meta":
        bucket.put_files(ulid)
        bucket.put_meta(ulid)
    elif operation == "bad" and not has_meta:
        bucket.put_files(ulid)
        bucket.put_meta(ulid, b"{")
    elif operation == "delete":
        for info in list(bucket.store.list(folder)):
            bucket.store.delete(info.key)
        remove_mark(bucket.store, bucket.layout, bucket.folder, ulid, DELETION)
    elif operation == "unmeta":
        bucket.store.delete(folder + META)
        return True
    elif operation in ("mark", "no-compact"):
        bucket.put_mark(ulid, DELETION if operation == "mark" else NO_COMPACT)
    elif operation == "unmark":
        remove_mark(bucket.store, bucket.layout, bucket.folder, ulid, DELETION)
        return True
    elif operation == "mark-in-block":
        bucket.put_mark(ulid, DELETION)
        if len(keys := bucket.layout.mark_keys(bucket.folder, ulid, DELETION)) > 1:
            bucket.store.delete(keys[1])
        return True
    return False
