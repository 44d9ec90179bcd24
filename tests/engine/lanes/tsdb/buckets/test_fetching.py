"""What is downloaded is what the bucket was found to have, or an error that names the block and file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.core.checksums import crc32c
from engine.core.errors import BadObject, BadReference, ChecksumMismatch, MergeCancelled, Truncated
from engine.formats.prometheus.errors import Inconsistent
from engine.lanes.tsdb.buckets import fetching
from engine.lanes.tsdb.buckets.fetching import fetch_blocks
from engine.lanes.tsdb.buckets.layout import META, block_key
from engine.lanes.tsdb.buckets.model import MarkKind
from engine.lanes.tsdb.jobs import BlockFile, TsdbSource
from engine.storage import StorageError
from tests.engine.lanes.tsdb.buckets.bucket import FILES, Bucket
from tests.faults.failing_store import FailingStore, Fault


def sources_of(bucket: Bucket) -> list[TsdbSource]:
    """The blocks of a bucket as a job names them."""
    return [
        TsdbSource(id=block.ulid, level=block.meta.compaction.level, files=block.files, meta=block.meta_bytes)
        for block in bucket.scan().appeared
    ]


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PIECE_BYTES", 7)


def test_blocks_are_fetched_whole_and_nothing_beside_them(bucket: Bucket, tmp_path: Path) -> None:
    ulids = [bucket.put_block(number) for number in range(5)]
    bucket.put_mark(ulids[0], MarkKind.NO_COMPACT)
    sources = sources_of(bucket)
    folders = fetch_blocks(bucket.store, bucket.folder, sources, tmp_path / "local")
    assert [folder.name for folder in folders] == ulids
    for folder, source in zip(folders, sources, strict=True):
        assert files_below(folder) == FILES | {META: source.meta}
    assert len(list((tmp_path / "local").iterdir())) == 5


def test_a_block_that_is_there_is_not_fetched_again(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put_block(1)
    sources = sources_of(bucket)
    fetch_blocks(bucket.store, bucket.folder, sources, tmp_path)
    counting = FailingStore(bucket.store)
    assert fetch_blocks(counting, bucket.folder, sources, tmp_path) == [tmp_path / sources[0].id]
    assert counting.calls == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda store, key: store.delete(key), Truncated),
        (lambda store, key: store.put(key, b"short"), Inconsistent),
        (lambda store, key: store.put(key, bytes(len(FILES["index"]))), ChecksumMismatch),
        (lambda store, key: store.put(key, bytes(100)), Inconsistent),
    ],
)
def test_a_block_that_changed_is_named_and_nothing_of_it_is_left(
    bucket: Bucket,
    tmp_path: Path,
    change,
    error: type[BadObject],  # type: ignore[no-untyped-def]
) -> None:
    ulid = bucket.put_block(1)
    (source,) = sources_of(bucket)
    source = replace(source, files=tuple(replace(file, crc32c=crc32c(FILES[file.name])) for file in source.files))
    change(bucket.store, block_key(bucket.folder, ulid, "index"))
    with pytest.raises(error, match=f"{ulid}: index") as caught:
        fetch_blocks(bucket.store, bucket.folder, [source], tmp_path)
    assert caught.value.object_name == f"{bucket.folder}{ulid}"
    assert list(tmp_path.glob("0*")) == []


def test_an_object_that_goes_while_it_is_read_is_named(bucket: Bucket, tmp_path: Path) -> None:
    class Vanishing(FailingStore):
        def get_range(self, key: str, offset: int, length: int) -> bytes:
            bucket.store.delete(key)
            return super().get_range(key, offset, length)

    bucket.put_block(1)
    with pytest.raises(Truncated, match="no object has this key"):
        fetch_blocks(Vanishing(bucket.store), bucket.folder, sources_of(bucket), tmp_path)


def test_a_name_that_leads_out_of_the_folder_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put_block(1)
    (source,) = sources_of(bucket)
    for name in ("../outside", "/outside", META, "chunks/../../x", ""):
        hostile = replace(source, files=(BlockFile(name=name, size=1),))
        with pytest.raises(BadReference):
            fetch_blocks(bucket.store, bucket.folder, [hostile], tmp_path / "local")
    assert list((tmp_path / "local").iterdir()) == []


def test_a_store_that_fails_leaves_nothing_and_a_second_try_works(bucket: Bucket, tmp_path: Path) -> None:
    for number in range(3):
        bucket.put_block(number)
    sources = sources_of(bucket)
    broken = FailingStore(bucket.store, Fault("get_range", call=9))
    with pytest.raises(StorageError):
        fetch_blocks(broken, bucket.folder, sources, tmp_path / "local")
    assert list((tmp_path / "local").iterdir()) == []
    assert len(fetch_blocks(bucket.store, bucket.folder, sources, tmp_path / "local")) == 3


def test_a_cancelled_download_stops(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put_block(1)
    with pytest.raises(MergeCancelled):
        fetch_blocks(bucket.store, bucket.folder, sources_of(bucket), tmp_path / "local", is_cancelled=lambda: True)
    assert list((tmp_path / "local").iterdir()) == []
