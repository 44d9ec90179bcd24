"""The block container: what is written is found again, and a reader never gets bytes of another place."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from engine.core.checksums import crc32c
from engine.core.errors import BadObject, ChecksumMismatch, Truncated
from engine.formats.profile_block.container.container import BlockReader, BlockWriter, ObjectReader
from engine.formats.profile_block.container.metadata import decode_footer
from engine.formats.profile_block.merge_model import PROFILES, SYMBOLS, WHOLE_DATASET_BYTES, InlineSection
from engine.formats.profile_block.model import DatasetMeta, IndexedSeries
from engine.storage import ObjectNotFound, ObjectStore, StorageError
from tests.engine.conftest import ForeignBlocks
from tests.engine.formats.profile_block.factories import BLOCK_ID, Dataset, row, series_labels, write_block

KEY = "blocks/1/acme/x/block.bin"


def add_dataset(
    writer: BlockWriter, name: str = "api", parts: tuple[bytes, ...] = (b"aa", b"b", b"ccc")
) -> DatasetMeta:
    series = [IndexedSeries(5, series_labels(service=name), 10, 20, 0)]
    return writer.add_dataset(
        tenant="acme",
        name=name,
        labels=[(("service_name", name),)],
        min_time_ms=3,
        max_time_ms=4,
        sections=[InlineSection(part) for part in parts],
        series=series,
    )


def test_sections_lie_back_to_back_and_the_footer_after_them() -> None:
    target = io.BytesIO()
    writer = BlockWriter(target)
    assert add_dataset(writer).section_bounds() == [(0, 2), (2, 1), (3, 3)]
    assert add_dataset(writer, "web").section_bounds() == [(6, 2), (8, 1), (9, 3)]
    index = writer.add_dataset_index("acme")
    meta = writer.finish(id=BLOCK_ID, tenant="acme", shard=1, compaction_level=1)
    data = target.getvalue()
    assert (index.name, index.format, index.table_of_contents) == ("", 1, (12,))
    assert meta.metadata_offset == 12 + index.size
    assert (meta.size, writer.crc32c) == (len(data), crc32c(data))
    assert decode_footer(data, len(data)) == meta
    assert meta.string_table[:2] == ("", "acme")


def test_a_given_string_table_keeps_its_order() -> None:
    writer = BlockWriter(io.BytesIO())
    add_dataset(writer)
    table = ("", "service_name", "unused", "api", "acme")
    meta = writer.finish(id=BLOCK_ID, tenant="", shard=1, compaction_level=0, created_by="me", string_table=table)
    assert meta.string_table == (*table, "me")


def test_a_dataset_index_covers_its_tenant_only() -> None:
    writer = BlockWriter(io.BytesIO())
    add_dataset(writer)
    assert writer.add_dataset_index("other").min_time_ms == 0
    assert writer.add_dataset_index("acme").min_time_ms == 3


def test_a_block_is_opened_by_its_footer(store: ObjectStore) -> None:
    source = write_block(store, [Dataset("acme", "api", (row(id=1),)), Dataset("beta", "api", (row(id=2),))])
    reader = BlockReader.open(store, source.key)
    assert [(dataset.tenant, dataset.name) for dataset in reader.meta.datasets] == [
        ("acme", "api"),
        ("beta", "api"),
        ("acme", ""),
        ("beta", ""),
    ]
    index = reader.read_dataset_index("beta")
    assert index is not None
    assert [entry.position for entry in index] == [1]


def test_a_missing_object_is_named(store: ObjectStore) -> None:
    with pytest.raises(ObjectNotFound, match="no/such"):
        BlockReader.open(store, "no/such")
    with pytest.raises(ObjectNotFound, match="no/such"):
        ObjectReader(store, "no/such", 10).read(0, 5)


@pytest.mark.parametrize("data", [b"", b"1234567", b"no footer at all, but long enough for one"])
def test_an_object_without_a_footer_is_no_block(store: ObjectStore, data: bytes) -> None:
    store.put(KEY, data)
    with pytest.raises(BadObject) as caught:
        BlockReader.open(store, KEY)
    assert (caught.value.object_name, caught.value.section) == (KEY, "footer")


def test_a_damaged_dataset_index_names_its_object(store: ObjectStore) -> None:
    source = write_block(store, [Dataset("acme", "api", (row(),))])
    reader = BlockReader.open(store, source.key)
    offset = reader.meta.datasets[-1].table_of_contents[0] + 12
    data = store.get(source.key)
    store.put(source.key, data[:offset] + b"\xff" + data[offset + 1 :])
    with pytest.raises(ChecksumMismatch) as caught:
        reader.read_dataset_index("acme")
    assert (caught.value.object_name, caught.value.section) == (source.key, "series_index")


@pytest.mark.parametrize(("offset", "length"), [(0, 11), (10, 1), (-1, 2), (3, -1), (1 << 62, 1)])
def test_reads_outside_the_object_are_refused_without_a_store_request(
    store: ObjectStore, offset: int, length: int
) -> None:
    store.put(KEY, bytes(10))
    reader = ObjectReader(store, KEY, 10)
    with pytest.raises(Truncated) as caught:
        reader.read(offset, length)
    assert (caught.value.object_name, caught.value.section, caught.value.offset) == (KEY, "container", offset)
    assert reader.requests == 0


def test_an_object_shorter_than_in_its_metadata_is_truncated(store: ObjectStore) -> None:
    store.put(KEY, bytes(10))
    with pytest.raises(Truncated, match="the object has 10"):
        ObjectReader(store, KEY, 100).read(5, 50)


def test_a_store_that_fails_is_not_taken_for_a_truncated_object(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(KEY, bytes(100))

    def fail(key: str, offset: int, length: int) -> bytes:
        raise StorageError("get_range", key, "the network is away")

    monkeypatch.setattr(store, "get_range", fail)
    with pytest.raises(StorageError, match="network"):
        ObjectReader(store, KEY, 100).read(5, 50)


def test_a_small_dataset_is_fetched_once_and_a_large_one_by_section(store: ObjectStore) -> None:
    large = (bytes(WHOLE_DATASET_BYTES), b"b", b"c")
    with store.open_writer(KEY) as target:
        writer = BlockWriter(target)
        small_meta, large_meta = add_dataset(writer), add_dataset(writer, "web", large)
        meta = writer.finish(id=BLOCK_ID, tenant="acme", shard=1, compaction_level=1)
    for dataset, expected in ((small_meta, 1), (large_meta, 3)):
        reader = BlockReader(store, KEY, meta)
        source = reader.dataset_source(dataset)
        assert reader.requests == 0
        for section in (PROFILES, 1, SYMBOLS):
            assert source.read_section(section) == reader._store.get_range(KEY, *dataset.section_bounds()[section])
        assert (reader.requests, reader.bytes_read) == (expected, dataset.size)


def test_a_read_beyond_a_small_dataset_is_refused(store: ObjectStore) -> None:
    source = write_block(store, [Dataset("acme", "api", (row(),))])
    reader = BlockReader.open(store, source.key)
    dataset = reader.meta.datasets[0]
    with pytest.raises(Truncated):
        reader.dataset_source(dataset).read(dataset.size - 1, 2)


@pytest.mark.foreign_data
def test_real_dataset_indexes_list_the_series_of_their_datasets(foreign_blocks: ForeignBlocks) -> None:
    for name, count in (("01JKT3DJRE", 11), ("01JKT2XEGT", 60), ("01JKT42699", 6)):
        block = foreign_blocks[name]
        reader = BlockReader(foreign_blocks.store, block.key, block.meta)
        index = reader.read_dataset_index("anonymous")
        assert index is not None
        assert len(index) == count
        assert {entry.position for entry in index} == {0}


@pytest.mark.foreign_data
def test_a_real_block_is_opened_by_its_footer(foreign_blocks: ForeignBlocks) -> None:
    block = foreign_blocks["01JKT3DJRE"]
    reader = BlockReader.open(foreign_blocks.store, block.key)
    assert reader.meta == block.meta
    assert replace(reader.meta, size=0) != reader.meta
