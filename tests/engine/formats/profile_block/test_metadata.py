"""Block metadata: real footers byte for byte, and footers that contradict themselves."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.checksums import crc32c
from engine.core.errors import BadObject, BadReference, ChecksumMismatch, Truncated, UnknownFormat
from engine.formats.profile_block.container.metadata import (
    FIRST_READ_BYTES,
    decode_footer,
    decode_metadata,
    encode_footer,
    encode_metadata,
    read_footer,
)
from engine.formats.profile_block.container.metadata_file import read_metadata_file
from engine.formats.profile_block.model import BlockMeta, DatasetMeta
from engine.formats.proto import block_pb2
from tests.engine.conftest import ForeignBlocks
from tests.engine.formats.profile_block.damage import flips, truncations
from tests.engine.formats.profile_block.factories import BLOCK_ID

SAMPLES = {"01JKT3DJRE": (206878, 207619), "01JKT2XEGT": (105149, 105472), "01JKT42699": (14046, 14364)}


def make_meta(**fields: object) -> BlockMeta:
    labels = ((("service_name", "api"), ("__profile_type__", "cpu")), (("service_name", "api"),))
    dataset = DatasetMeta(
        tenant="acme", name="api", min_time_ms=5, max_time_ms=9, table_of_contents=(0, 10, 30), size=60, labels=labels
    )
    index = DatasetMeta(
        tenant="acme", name="", min_time_ms=5, max_time_ms=9, table_of_contents=(60,), size=40, format=1
    )
    strings = ("", "acme", "api", "service_name", "__profile_type__", "cpu", "host")
    values: dict[str, object] = {
        "id": BLOCK_ID,
        "tenant": "",
        "shard": 3,
        "compaction_level": 0,
        "min_time_ms": 5,
        "max_time_ms": 9,
        "datasets": (dataset, index),
        "string_table": strings,
        "created_by": "host",
        "metadata_offset": 100,
    }
    return BlockMeta(**{**values, **fields})  # type: ignore[arg-type]


def make_object(meta: BlockMeta | None = None) -> bytes:
    return bytes(100) + encode_footer(meta or make_meta())


def read(data: bytes) -> BlockMeta:
    return read_footer(lambda offset, length: data[offset : offset + length], len(data))


@pytest.mark.foreign_data
@pytest.mark.parametrize("name", SAMPLES)
def test_real_footers_re_encode_byte_for_byte(foreign_blocks: ForeignBlocks, name: str) -> None:
    block = foreign_blocks[name]
    offset, size = SAMPLES[name]
    assert (block.meta.metadata_offset, len(block.data)) == (offset, size)
    assert encode_footer(replace(block.meta, size=0)) == block.data[offset:]


@pytest.mark.foreign_data
def test_a_side_file_stands_in_for_missing_footers(foreign_blocks: ForeignBlocks) -> None:
    meta = foreign_blocks["01J2VJR0R3"].meta
    assert [dataset.name for dataset in meta.datasets] == ["pyroscope-test/alloy", "pyroscope-test/ingester"]
    assert (meta.shard, meta.compaction_level, meta.format_version, meta.tenant) == (1, 0, 0, "")
    with pytest.raises(BadObject, match="footer"):
        read(foreign_blocks["01J2VJR0R3"].data)


def test_a_footer_gives_back_its_metadata() -> None:
    data = make_object()
    assert read(data) == replace(make_meta(), size=len(data))
    assert decode_metadata(encode_metadata(make_meta())) == make_meta()


def test_a_long_footer_takes_a_second_read() -> None:
    strings = (*make_meta().string_table, *(f"string {i}" for i in range(8000)))
    data = make_object(make_meta(string_table=strings))
    reads = []

    def read_range(offset: int, length: int) -> bytes:
        reads.append(length)
        return data[offset : offset + length]

    assert read_footer(read_range, len(data)).string_table == strings
    assert reads == [FIRST_READ_BYTES, len(data) - 100]


def test_every_truncation_of_an_object_is_refused() -> None:
    for data in truncations(make_object()):
        with pytest.raises(BadObject):
            read(data)


def test_every_flipped_byte_of_a_footer_is_refused() -> None:
    for offset, data in flips(make_object()):
        if offset >= 100:
            with pytest.raises(BadObject):
                read(data)


@given(st.binary(max_size=200))
def test_no_bytes_do_worse_than_a_typed_error(data: bytes) -> None:
    for decode in (decode_metadata, lambda data: decode_footer(data, len(data)), read_metadata_file):
        with contextlib.suppress(BadObject):
            decode(data)


def test_a_footer_that_names_another_place_is_refused() -> None:
    with pytest.raises(BadReference, match="metadata_offset"):
        read(b"x" + make_object())


def test_an_absurd_length_is_refused_before_it_is_read() -> None:
    tail = (0xFFFFFFF0).to_bytes(4, "big") + bytes(4)
    with pytest.raises(Truncated, match="4294967280"):
        read(bytes(100) + tail)


def damaged(**fields: object) -> bytes:
    """Return a message with one field changed."""
    message = block_pb2.BlockMeta()
    message.ParseFromString(encode_metadata(make_meta()))
    dataset_fields = {name[8:]: value for name, value in fields.items() if name.startswith("dataset_")}
    for name, value in dataset_fields.items():
        _set(message.datasets[0], name, value)
    for name in fields.keys() - {f"dataset_{name}" for name in dataset_fields}:
        _set(message, name, fields[name])
    return message.SerializeToString()


def _set(message: object, name: str, value: object) -> None:
    if isinstance(value, list):
        del getattr(message, name)[:]
        getattr(message, name).extend(value)
    else:
        setattr(message, name, value)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"format_version": 2}, UnknownFormat),
        ({"id": "no id"}, BadObject),
        ({"tenant": 99}, BadReference),
        ({"created_by": -1}, BadReference),
        ({"string_table": []}, BadReference),
        ({"metadata_offset": 99}, BadReference),
        ({"dataset_tenant": 7}, BadReference),
        ({"dataset_name": -3}, BadReference),
        ({"dataset_format": 2}, UnknownFormat),
        ({"dataset_format": 1}, BadObject),
        ({"dataset_table_of_contents": [0, 10]}, BadObject),
        ({"dataset_table_of_contents": [0, 30, 10]}, BadReference),
        ({"dataset_table_of_contents": [0, 10, 61]}, BadReference),
        ({"dataset_size": 1 << 63}, BadReference),
        ({"dataset_labels": [2, 3, 2]}, BadReference),
        ({"dataset_labels": [-1]}, BadReference),
        ({"dataset_labels": [1, 3, 77]}, BadReference),
        ({"dataset_labels": [1 << 30]}, BadReference),
    ],
)
def test_metadata_that_contradicts_itself_is_refused(fields: dict[str, object], error: type[BadObject]) -> None:
    with pytest.raises(error) as caught:
        decode_metadata(damaged(**fields))
    assert caught.value.section == "footer"


def test_a_wrong_checksum_is_a_checksum_mismatch() -> None:
    data = make_object()
    with pytest.raises(ChecksumMismatch):
        read(data[:-4] + (crc32c(b"other")).to_bytes(4, "big"))


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"blocks": 3}', b'{"blocks": [3]}', b'{"blocks": [{"shard": "x"}]}', b"\xff"]
)
def test_a_side_file_of_another_shape_is_refused(data: bytes) -> None:
    with pytest.raises(BadObject):
        read_metadata_file(data)
