"""From an uploaded block to deleted sources: each step repeatable, nothing half visible wherever it is interrupted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.core.checksums import crc32c
from engine.core.errors import BadObject, MergeCancelled
from engine.formats.prometheus.tombstones import encode_tombstones
from engine.lanes.tsdb.buckets.bucket_index import read_index
from engine.lanes.tsdb.buckets.deleting import delete_marked_block, delete_partial_upload
from engine.lanes.tsdb.buckets.layout import META, block_key
from engine.lanes.tsdb.buckets.model import MarkKind
from engine.lanes.tsdb.buckets.publishing import (
    IncompleteBlock,
    PublishConflict,
    mark_replaced,
    publish_meta,
    update_index,
)
from engine.lanes.tsdb.buckets.uploading import upload_block
from engine.lanes.tsdb.jobs import BlockFile
from engine.storage import ObjectStore, StorageError, open_store
from tests.engine.lanes.tsdb.buckets.bucket import FILES, Bucket, meta_document, ulid_of
from tests.faults.failing_store import FailingStore, Fault

RESULT = ulid_of(100)
NOW = 1_700_000_000
DELAY = 3600.0
RESULT_META = json.dumps(meta_document(RESULT)).encode()


@pytest.fixture
def result(tmp_path: Path) -> Path:
    """A block's folder as a merge leaves it."""
    folder = tmp_path / "merged" / RESULT
    (folder / "chunks").mkdir(parents=True)
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    (folder / "tombstones").write_bytes(encode_tombstones(()))
    (folder / META).write_bytes(b"the worker's own")
    return folder


def test_an_upload_is_all_but_meta_and_tombstones_with_sizes_and_checksums(bucket: Bucket, result: Path) -> None:
    files = upload_block(bucket.store, bucket.folder, result)
    assert files == tuple(
        BlockFile(name=name, size=len(data), crc32c=crc32c(data)) for name, data in sorted(FILES.items())
    )
    assert bucket.contents() == {block_key(bucket.folder, RESULT, name): data for name, data in FILES.items()}
    scan = bucket.scan()
    assert (scan.appeared, [each.ulid for each in scan.partial]) == ((), [RESULT])


def test_tombstones_go_along_if_there_are_any(bucket: Bucket, result: Path) -> None:
    (result / "tombstones").write_bytes(encode_tombstones([(1, 0, 5)]))
    assert "tombstones" in {file.name for file in upload_block(bucket.store, bucket.folder, result)}


def test_an_upload_again_sends_what_is_missing_or_torn(bucket: Bucket, result: Path) -> None:
    files = upload_block(bucket.store, bucket.folder, result)
    bucket.store.delete(block_key(bucket.folder, RESULT, "index"))
    bucket.store.put(block_key(bucket.folder, RESULT, "chunks/000002"), b"torn")
    counting = FailingStore(bucket.store)
    assert upload_block(counting, bucket.folder, result) == files
    sent = {key.removeprefix(f"{bucket.folder}{RESULT}/") for name, key in counting.calls if name == "open_writer"}
    assert sent == {"index", "chunks/000002"}


@pytest.mark.parametrize("operation", ["open_writer", "write", "commit", "list"])
def test_an_upload_that_fails_shows_nothing_and_can_be_repeated(bucket: Bucket, result: Path, operation: str) -> None:
    with pytest.raises(StorageError):
        upload_block(FailingStore(bucket.store, Fault(operation, torn_bytes=3)), bucket.folder, result)
    assert all(data == FILES[key.partition(f"{RESULT}/")[2]] for key, data in bucket.contents().items())
    upload_block(bucket.store, bucket.folder, result)
    assert len(bucket.contents()) == len(FILES)


def test_a_cancelled_upload_stops(bucket: Bucket, result: Path) -> None:
    with pytest.raises(MergeCancelled):
        upload_block(bucket.store, bucket.folder, result, is_cancelled=lambda: True)
    assert bucket.contents() == {}


def test_a_published_block_is_not_overwritten(bucket: Bucket, result: Path) -> None:
    files = upload_block(bucket.store, bucket.folder, result)
    assert publish_meta(bucket.store, bucket.folder, RESULT, RESULT_META, files)
    before = bucket.contents()
    assert upload_block(bucket.store, bucket.folder, result) == files
    (result / "index").write_bytes(b"of another merge")
    with pytest.raises(PublishConflict, match="index"):
        upload_block(bucket.store, bucket.folder, result)
    assert bucket.contents() == before


def test_meta_makes_a_block_visible_once(bucket: Bucket, result: Path) -> None:
    files = upload_block(bucket.store, bucket.folder, result)
    assert publish_meta(bucket.store, bucket.folder, RESULT, RESULT_META, files)
    assert not publish_meta(bucket.store, bucket.folder, RESULT, RESULT_META, files)
    (block,) = bucket.scan().appeared
    assert block.meta_bytes == RESULT_META
    with pytest.raises(PublishConflict):
        publish_meta(bucket.store, bucket.folder, RESULT, RESULT_META + b" ", files)


def test_a_block_that_lacks_a_file_is_not_made_visible(bucket: Bucket, result: Path) -> None:
    files = upload_block(bucket.store, bucket.folder, result)
    bucket.store.put(block_key(bucket.folder, RESULT, "chunks/000001"), b"short")
    bucket.store.delete(block_key(bucket.folder, RESULT, "index"))
    with pytest.raises(IncompleteBlock, match="chunks/000001, index"):
        publish_meta(bucket.store, bucket.folder, RESULT, RESULT_META, files)
    assert bucket.scan().appeared == ()


@pytest.mark.parametrize("meta", [b"", b"{}", json.dumps(meta_document(ulid_of(1))).encode()])
def test_a_meta_of_another_block_is_refused(bucket: Bucket, result: Path, meta: bytes) -> None:
    files = upload_block(bucket.store, bucket.folder, result)
    with pytest.raises(BadObject, match=RESULT):
        publish_meta(bucket.store, bucket.folder, RESULT, meta, files)
    assert bucket.scan().appeared == ()


def test_sources_are_not_marked_before_the_result_is_visible(bucket: Bucket, result: Path) -> None:
    source = bucket.put_block(1)
    upload_block(bucket.store, bucket.folder, result)
    with pytest.raises(IncompleteBlock, match=META):
        mark_replaced(bucket.store, bucket.layout, bucket.folder, [source], [RESULT], at_s=NOW)
    assert bucket.scan().known.plannable() == {source}


def test_a_merge_that_left_no_sample_marks_its_sources(bucket: Bucket) -> None:
    source = bucket.put_block(1)
    assert mark_replaced(bucket.store, bucket.layout, bucket.folder, [source], [], at_s=NOW) == (source,)
    assert bucket.scan().known.plannable() == set()


def test_a_source_that_is_gone_is_not_marked_and_one_that_is_marked_keeps_its_time(bucket: Bucket) -> None:
    marked = bucket.put_block(1)
    bucket.put_mark(marked, MarkKind.DELETION, NOW - 1000)
    before = bucket.contents()
    assert mark_replaced(bucket.store, bucket.layout, bucket.folder, [marked, ulid_of(2)], [], at_s=NOW) == ()
    assert bucket.contents() == before


class Killed(Exception):
    """The process ends here: nothing in it may make something of that."""


def outbox(store: ObjectStore, bucket: Bucket, sources: list[str], files: tuple[BlockFile, ...]) -> None:
    """The steps after a commit, as the outbox takes them."""
    publish_meta(store, bucket.folder, RESULT, RESULT_META, files)
    mark_replaced(store, bucket.layout, bucket.folder, sources, [RESULT], at_s=NOW, details="merged")
    update_index(store, bucket.layout, bucket.folder, now_s=NOW)


@pytest.mark.slow
@pytest.mark.parametrize("is_late", [False, True])
def test_an_outbox_killed_anywhere_leaves_nothing_half_visible_and_resumes(
    bucket: Bucket, result: Path, tmp_path: Path, is_late: bool
) -> None:
    def begun(name: str) -> tuple[Bucket, list[str], tuple[BlockFile, ...]]:
        made = Bucket(open_store(str(tmp_path / name)), bucket.layout.name)
        return made, [made.put_block(1), made.put_block(2)], upload_block(made.store, made.folder, result)

    whole, sources, files = begun("whole")
    recorder = FailingStore(whole.store)
    outbox(recorder, whole, sources, files)
    counts: dict[str, int] = {}
    kills = 0
    for position, (operation, _) in enumerate(recorder.calls):
        counts[operation] = counts.get(operation, 0) + 1
        made, sources, files = begun(f"killed-{position}")
        try:
            fault = Fault(operation, counts[operation], is_late=is_late, error=Killed)
            outbox(FailingStore(made.store, fault), made, sources, files)
        except Killed:
            kills += 1
        known = made.scan(deep=True).known
        # Until the result is there, whole, no source has so much as a mark.
        assert known.complete >= {*sources}
        assert not known.bad
        assert RESULT in known.plannable() or known.plannable() == {*sources}
        outbox(made.store, made, sources, files)
        outbox(made.store, made, sources, files)
        if bucket.layout.has_index:
            index = read_index(made.store, made.layout, made.folder)
            assert index
            assert (set(index.blocks), set(index.deletion_times_s)) == ({*sources, RESULT}, {*sources})
        assert without_index(made) == without_index(whole)
    assert kills > 5


def without_index(bucket: Bucket) -> dict[str, bytes]:
    """The objects but the index, which tells when each block was uploaded."""
    return {key: data for key, data in bucket.contents().items() if not key.endswith(".gz")}


def test_a_marked_block_goes_after_the_delay_and_takes_its_marks_along(bucket: Bucket) -> None:
    ulid, other = bucket.put_block(1), bucket.put_block(2)
    bucket.put_mark(ulid, MarkKind.DELETION, NOW)
    bucket.put_mark(ulid, MarkKind.NO_COMPACT, NOW)

    def delete(block: str, now: float) -> bool:
        return delete_marked_block(bucket.store, bucket.layout, bucket.folder, block, now_s=now, delay_s=DELAY)

    assert not delete(ulid, NOW + DELAY - 1)
    assert not delete(other, NOW + DELAY)
    assert bucket.scan().known.complete == {ulid, other}
    assert delete(ulid, NOW + DELAY)
    assert not any(ulid in key for key in bucket.contents())
    assert bucket.scan().known.complete == {other}


def test_a_block_whose_mark_cannot_be_read_stays(bucket: Bucket) -> None:
    ulid = bucket.put_block(1)
    bucket.put_mark(ulid, MarkKind.DELETION, data=b"{")
    assert not delete_marked_block(bucket.store, bucket.layout, bucket.folder, ulid, now_s=2**40, delay_s=0)
    assert bucket.scan().known.complete == {ulid}


def test_a_deletion_killed_anywhere_is_recognised_and_resumes(bucket: Bucket, tmp_path: Path) -> None:
    for call in range(1, 20):
        made = Bucket(open_store(str(tmp_path / f"killed-{call}")), bucket.layout.name)
        ulid = made.put_block(1)
        made.put_mark(ulid, MarkKind.DELETION, NOW)
        made.put_mark(ulid, MarkKind.NO_COMPACT, NOW)
        broken = FailingStore(made.store, Fault("delete", call))
        try:
            is_whole = delete_marked_block(broken, made.layout, made.folder, ulid, now_s=NOW, delay_s=0)
        except StorageError:
            is_whole = False
            scan = made.scan()
            assert scan.known.plannable() == set()
            assert not scan.known.complete or call == 1
            marks = {mark.ulid for mark in scan.known.marks.values() if mark.kind is MarkKind.DELETION}
            assert marks == {ulid}
            if scan.partial:
                assert scan.partial[0].has_deletion_mark
            assert delete_marked_block(made.store, made.layout, made.folder, ulid, now_s=NOW, delay_s=0)
        assert made.contents() == {}
        if is_whole:
            assert call > len(FILES) + 2
            return
    pytest.fail("the deletion never came to its end")


def test_a_partial_upload_goes_once_nothing_was_written_to_it_for_long(bucket: Bucket) -> None:
    ulid, complete = ulid_of(1), bucket.put_block(2)
    bucket.put_files(ulid)
    (partial,) = bucket.scan().partial

    def delete(block: str, now: float) -> bool:
        return delete_partial_upload(bucket.store, bucket.layout, bucket.folder, block, now_s=now, delay_s=DELAY)

    assert not delete(ulid, partial.newest_at_s + DELAY - 1)
    assert not delete(complete, partial.newest_at_s + 10 * DELAY)
    assert not delete(ulid_of(3), partial.newest_at_s + 10 * DELAY)
    assert delete(ulid, partial.newest_at_s + DELAY + 1)
    assert bucket.scan().known.blocks == {complete}


def test_the_rest_of_a_deletion_goes_at_once(bucket: Bucket) -> None:
    ulid = ulid_of(1)
    bucket.put_files(ulid)
    bucket.put_mark(ulid, MarkKind.DELETION, NOW)
    assert delete_partial_upload(bucket.store, bucket.layout, bucket.folder, ulid, now_s=0, delay_s=DELAY)
    assert bucket.contents() == {}


def test_a_lone_visit_marker_goes_when_the_visit_is_over(bucket: Bucket) -> None:
    ulid = ulid_of(1)
    bucket.store.put(block_key(bucket.folder, ulid, "visit-mark.json"), b"{}")
    written = bucket.scan().partial[0].newest_at_s

    def delete(now: float) -> bool:
        return delete_partial_upload(bucket.store, bucket.layout, bucket.folder, ulid, now_s=now, delay_s=10 * DELAY)

    assert not delete(written + 599)
    assert delete(written + 601)
    assert bucket.contents() == {}
