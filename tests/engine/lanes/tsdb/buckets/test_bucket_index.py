"""The bucket index: other readers' fields, equal bytes for equal content, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from engine.core.errors import BadObject, LimitExceeded
from engine.lanes.tsdb.buckets import bucket_index
from engine.lanes.tsdb.buckets.bucket_index import decode_index, encode_index, read_index
from engine.lanes.tsdb.buckets.layout import META, block_key
from engine.lanes.tsdb.buckets.model import MarkKind
from engine.lanes.tsdb.buckets.publishing import update_index
from engine.storage import StorageError, open_store
from tests.engine.lanes.tsdb.buckets.bucket import Bucket, ulid_of
from tests.faults.failing_store import FailingStore, Fault


@pytest.fixture
def cortex(tmp_path: Path) -> Bucket:
    """An empty bucket of Cortex."""
    return Bucket(open_store(str(tmp_path)), "cortex")


def document(bucket: Bucket) -> dict[str, object]:
    found: dict[str, object] = json.loads(gzip.decompress(bucket.store.get(bucket.layout.index_key(bucket.folder))))
    return found


def test_the_index_has_the_fields_that_others_read(cortex: Bucket) -> None:
    first, second = cortex.put_block(2), cortex.put_block(1)
    cortex.put_mark(first, MarkKind.DELETION, 1_700_000_123)
    cortex.put_mark(second, MarkKind.NO_COMPACT)
    cortex.put_mark(ulid_of(7), MarkKind.DELETION)  # of a block that is gone
    update_index(cortex.store, cortex.layout, cortex.folder, now_s=1_700_000_999.5)
    uploaded = [int(cortex.store.head(block_key(cortex.folder, ulid, META)).modified_at) for ulid in (second, first)]
    common = {
        "min_time": 0,
        "max_time": 7_200_000,
        "segments_format": "1b6d",
        "segments_num": 2,
        "series_max_size": 96,
        "chunk_max_size": 40,
    }
    assert document(cortex) == {
        "version": 1,
        "blocks": [
            {"block_id": second, **common, "uploaded_at": uploaded[0]},
            {"block_id": first, **common, "uploaded_at": uploaded[1]},
        ],
        "block_deletion_marks": [{"block_id": first, "deletion_time": 1_700_000_123}],
        "updated_at": 1_700_000_999,
    }
    status = json.loads(cortex.store.get(cortex.layout.sync_status_key(cortex.folder)))
    assert status["syncTime"] == 1_700_000_999


def test_equal_content_has_equal_bytes(cortex: Bucket) -> None:
    for number in (3, 1, 2):
        cortex.put_block(number)
    index = update_index(cortex.store, cortex.layout, cortex.folder, now_s=1)
    assert index
    data = cortex.store.get(cortex.layout.index_key(cortex.folder))
    update_index(cortex.store, cortex.layout, cortex.folder, now_s=1)
    assert cortex.store.get(cortex.layout.index_key(cortex.folder)) == data == encode_index(index)
    assert decode_index(data) == index


def test_an_update_reads_only_what_is_new(cortex: Bucket) -> None:
    for number in range(10):
        cortex.put_block(number)
    update_index(cortex.store, cortex.layout, cortex.folder, now_s=1)
    new = cortex.put_block(11)
    before = cortex.store.usage.requests()["get"]
    update_index(cortex.store, cortex.layout, cortex.folder, now_s=2)
    assert cortex.store.usage.requests()["get"] - before == 2  # the index and one meta.json
    index = read_index(cortex.store, cortex.layout, cortex.folder)
    assert index
    assert new in index.blocks
    assert len(index.blocks) == 11


def test_the_index_of_an_empty_tenant_goes(cortex: Bucket) -> None:
    ulid = cortex.put_block(1)
    update_index(cortex.store, cortex.layout, cortex.folder, now_s=1)
    for info in list(cortex.store.list(block_key(cortex.folder, ulid, ""))):
        cortex.store.delete(info.key)
    update_index(cortex.store, cortex.layout, cortex.folder, now_s=2)
    assert cortex.contents() == {}


def test_a_thanos_bucket_has_no_index(tmp_path: Path) -> None:
    bucket = Bucket(open_store(str(tmp_path)), "thanos")
    bucket.put_block(1)
    before = bucket.contents()
    assert update_index(bucket.store, bucket.layout, bucket.folder, now_s=1) is None
    assert bucket.contents() == before


def test_bad_blocks_and_partial_uploads_are_not_in_the_index(cortex: Bucket) -> None:
    sound = cortex.put_block(1)
    cortex.put_files(ulid_of(2))
    cortex.put_files(ulid_of(3))
    cortex.put_meta(ulid_of(3), b"{")
    index = update_index(cortex.store, cortex.layout, cortex.folder, now_s=1)
    assert index
    assert index.blocks.keys() == {sound}


def test_a_block_that_the_store_does_not_give_is_not_left_out(cortex: Bucket) -> None:
    ulid = cortex.put_block(1)
    cortex.put_block(2)
    before = cortex.contents()
    broken = FailingStore(cortex.store, Fault("get", key_part=ulid))
    with pytest.raises(StorageError, match=ulid):
        update_index(broken, cortex.layout, cortex.folder, now_s=1)
    assert cortex.contents() == before


def test_chunk_files_that_are_not_numbered_as_usual_are_not_promised(cortex: Bucket) -> None:
    ulid = ulid_of(1)
    cortex.put_files(ulid)
    cortex.store.delete(block_key(cortex.folder, ulid, "chunks/000001"))
    cortex.put_meta(ulid, thanos={"index_stats": {"series_max_size": "much", "chunk_max_size": -1}})
    index = update_index(cortex.store, cortex.layout, cortex.folder, now_s=1)
    assert index
    entry = index.blocks[ulid]
    assert (entry.segments_format, entry.segments, entry.series_max_size, entry.chunk_max_size) == ("", 0, 0, 0)


def test_an_index_written_in_go_for_no_blocks_is_read() -> None:
    data = gzip.compress(b'{"version":1,"blocks":null,"block_deletion_marks":null,"updated_at":5}')
    assert decode_index(data).updated_at_s == 5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version":2}',
        '{"version":1}',
        '{"version":1,"updated_at":1,"blocks":{}}',
        '{"version":1,"updated_at":1,"blocks":[{"block_id":"../../x","min_time":0,"max_time":1}]}',
        '{"version":1,"updated_at":1,"blocks":[{"block_id":"01M7XZJ8TS9MBSFE7YB3WA97CR","min_time":"0","max_time":1}]}',
    ],
)
def test_what_is_no_index_is_refused(text: str) -> None:
    with pytest.raises(BadObject):
        decode_index(gzip.compress(text.encode()))


def test_an_index_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_index, "INDEX_BYTES_MAX", 1 << 20)
    with pytest.raises(LimitExceeded):
        decode_index(gzip.compress(bytes(50 << 20)))
