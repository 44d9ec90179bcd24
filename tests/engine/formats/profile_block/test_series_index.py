"""The series index codec, twin and compiled: real sections byte for byte, and hostile ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import BadReference, LimitExceeded, UnknownFormat
from engine.formats.profile_block.model import IndexedSeries
from tests.engine.conftest import ForeignBlocks, Implementation
from tests.engine.formats.profile_block.damage import flips, patched, refuses, truncations, with_crc
from tests.engine.formats.profile_block.factories import fingerprint, series_labels

TOC_BYTES = 76
names = st.binary(max_size=6)
label_lists = st.lists(st.tuples(names, names), max_size=4).map(tuple)
times = st.integers(-(1 << 62), 1 << 62)


@st.composite
def indexed_series(draw: st.DrawFn) -> list[IndexedSeries]:
    entries = []
    for labels in draw(st.lists(label_lists, max_size=12)):
        low, high = sorted((draw(times), draw(times)))
        entries.append(
            IndexedSeries(draw(st.integers(0, (1 << 64) - 1)), labels, low, high, draw(st.integers(0, (1 << 32) - 1)))
        )
    return entries


def make_series(count: int) -> list[IndexedSeries]:
    labels = sorted(series_labels(pod=f"pod-{number:05}") for number in range(count))
    return [
        IndexedSeries(fingerprint(entry), entry, 1000 + position, 2000 + position, position)
        for position, entry in enumerate(labels)
    ]


@pytest.mark.foreign_data
def test_real_sections_re_encode_byte_for_byte(implementation: Implementation, foreign_blocks: ForeignBlocks) -> None:
    sections = [
        block.section(dataset, 0 if dataset.format else 1)
        for block in foreign_blocks.all()
        for dataset in block.meta.datasets
    ]
    assert len(sections) == 12
    for section in sections:
        assert implementation.encode_series_index(implementation.decode_series_index(section)) == section


@pytest.mark.foreign_data
def test_a_known_fingerprint_is_the_hash_of_the_stored_labels(
    implementation: Implementation, foreign_blocks: ForeignBlocks
) -> None:
    block = foreign_blocks["01JKT2XEGT"]
    second = implementation.decode_series_index(next(block.sections(1)))[1]
    assert second.fingerprint == 18444067712928455933 == fingerprint(second.labels)
    assert (b"instance", b'"1"') in second.labels
    assert (b"function", b"fast") in second.labels


@given(indexed_series())
def test_what_is_written_is_read(implementation: Implementation, series: list[IndexedSeries]) -> None:
    assert implementation.decode_series_index(implementation.encode_series_index(series)) == series


def test_a_dataset_index_may_repeat_label_sets_out_of_order(implementation: Implementation) -> None:
    one, two = make_series(2)
    series = [two._replace(position=0), one._replace(position=0), two._replace(position=1)]
    assert implementation.decode_series_index(implementation.encode_series_index(series)) == series


def test_more_than_1024_series_have_further_fingerprint_offsets(implementation: Implementation) -> None:
    series = make_series(2050)
    data = implementation.encode_series_index(series)
    assert implementation.decode_series_index(data) == series
    offsets_at = int.from_bytes(data[-TOC_BYTES + 48 : -TOC_BYTES + 56], "big")
    assert int.from_bytes(data[offsets_at + 4 : offsets_at + 8], "big") == 3


def test_every_truncation_is_refused(implementation: Implementation) -> None:
    data = implementation.encode_series_index(make_series(3))
    assert all(refuses(implementation.decode_series_index, cut, "series_index") for cut in truncations(data))


def test_a_flipped_byte_is_refused_or_is_padding(implementation: Implementation) -> None:
    series = make_series(3)
    data = implementation.encode_series_index(series)
    passed = 0
    for offset, damaged in flips(data):
        if not refuses(implementation.decode_series_index, damaged, "series_index"):
            assert data[offset] == 0
            assert implementation.decode_series_index(damaged) == series
            passed += 1
    assert passed < 80  # zero bytes between entries and lists, which no checksum covers


@given(st.binary(max_size=300))
def test_no_bytes_do_worse_than_a_typed_error(implementation: Implementation, data: bytes) -> None:
    refuses(implementation.decode_series_index, data, "series_index")
    refuses(implementation.decode_series_index, bytes.fromhex("baaad70002") + data, "series_index")


def test_another_version_is_not_guessed_at(implementation: Implementation) -> None:
    data = implementation.encode_series_index(make_series(1))
    with pytest.raises(UnknownFormat):
        implementation.decode_series_index(patched(data, 4, b"\x03"))


def test_an_absurd_symbol_count_is_refused_before_anything_is_allocated(implementation: Implementation) -> None:
    data = implementation.encode_series_index(make_series(1))
    length = int.from_bytes(data[5:9], "big")
    bomb = with_crc(patched(data, 9, b"\xff\xff\xff\xff"), 9, 9 + length)
    with pytest.raises(LimitExceeded):
        implementation.decode_series_index(bomb)


def test_a_table_of_contents_out_of_order_is_refused(implementation: Implementation) -> None:
    data = implementation.encode_series_index(make_series(1))
    start = len(data) - TOC_BYTES
    for field in range(7):
        for position in (0, len(data), (1 << 64) - 1):
            wrong = patched(data, start + 8 * field, position.to_bytes(8, "big"))
            with pytest.raises(BadReference):
                implementation.decode_series_index(with_crc(wrong, start, len(data) - 4))


def test_lists_that_many_table_entries_share_are_refused(implementation: Implementation) -> None:
    """A small table that names one large list again and again would cost the product of both."""
    data = implementation.encode_series_index(make_series(200))
    table_at = int.from_bytes(data[-TOC_BYTES + 40 : -TOC_BYTES + 48], "big")
    length = int.from_bytes(data[table_at : table_at + 4], "big")
    body = bytearray(data[table_at + 4 : table_at + 4 + length])
    entries = _table_entries(bytes(body))
    first_list = entries[0][0]
    second_at, second_size = entries[1][1], entries[1][2]
    body[second_at : second_at + second_size] = _varint_of_width(first_list, second_size)
    damaged = patched(data, table_at + 4, bytes(body))
    with pytest.raises(BadReference):
        implementation.decode_series_index(with_crc(damaged, table_at + 4, table_at + 4 + length))


def _table_entries(body: bytes) -> list[tuple[int, int, int]]:
    """Return (list offset, where its varint is in the body, size of the varint) of every postings table entry."""
    entries, at = [], 4
    while at < len(body):
        at += 1
        for _ in range(2):
            length, at = _read_varint(body, at)
            at += length
        start = at
        offset, at = _read_varint(body, at)
        entries.append((offset, start, at - start))
    return entries


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def _varint_of_width(value: int, width: int) -> bytes:
    out = bytearray(value >> (7 * i) & 0x7F | 0x80 for i in range(width))
    out[-1] &= 0x7F
    return bytes(out)
