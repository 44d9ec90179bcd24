"""The small compiled parts: that the build loads them, checksums (_checksum_kernels) and columns (_integer_columns)."""

from __future__ import annotations

import os
import random
import zlib

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import _checksum_kernels as kernels
from engine.core.binary import encode_svarint, encode_uvarint
from engine.formats.profile_block.table import _integer_columns as columns
from engine.formats.profile_block.table import _integer_columns_py as twin

BITS = st.sampled_from([32, 64])


def test_the_debug_suite_runs_on_the_debug_build() -> None:
    assert (os.environ.get("LITHIFY_EXPECT_DEBUG") == "1") == kernels.IS_DEBUG_BUILD


@pytest.mark.parametrize("crc32c", [kernels.crc32c, kernels.crc32c_sliced])
def test_crc32c_has_its_published_values(crc32c: object) -> None:
    assert crc32c(b"123456789") == 0xE3069283  # type: ignore[operator]
    assert crc32c(bytes(32)) == 0x8A9136AA  # type: ignore[operator]
    assert crc32c(b"\xff" * 32) == 0x62A8AB43  # type: ignore[operator]
    assert crc32c(b"") == 0  # type: ignore[operator]


def test_crc32_has_its_published_value() -> None:
    assert kernels.crc32(b"123456789") == 0xCBF43926


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_both_ways_of_a_checksum_agree_with_others_and_continue(before: bytes, data: bytes) -> None:
    start = google_crc32c.value(before)
    assert kernels.crc32c(data, start) == kernels.crc32c_sliced(data, start) == google_crc32c.value(before + data)
    assert kernels.crc32(data) == zlib.crc32(data)


@pytest.mark.parametrize("size", [*range(376, 394), *range(760, 776), 1151, 1152, 1160, 5000])
def test_bytes_that_are_gone_through_in_three_places_at_once_have_the_same_checksum(size: int) -> None:
    data = random.Random(size).randbytes(size)
    for start in (0, 0xFFFFFFFF, 0x12345678):
        assert kernels.crc32c(data, start) == kernels.crc32c_sliced(data, start)
    assert kernels.crc32c(data) == google_crc32c.value(data)


def signed(bits: int) -> st.SearchStrategy[int]:
    near = st.integers(-300, 300)
    return st.one_of(near, st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1))


@given(BITS.flatmap(lambda bits: st.tuples(st.just(bits), st.lists(signed(bits), max_size=300))))
def test_a_column_has_the_bytes_of_the_twin_and_is_read_back(case: tuple[int, list[int]]) -> None:
    bits, values = case
    encoded = columns.encode_deltas(values, bits)
    assert encoded == twin.encode_column(values, bits)
    assert columns.decode_deltas(encoded, bits, len(values)) == (values, len(encoded))


def test_a_column_longer_than_promised_or_cut_short_is_not_read() -> None:
    encoded = columns.encode_deltas(list(range(0, 5000, 7)), 64)
    count = len(range(0, 5000, 7))
    assert columns.decode_deltas(encoded, 64, count) is not None
    assert columns.decode_deltas(encoded, 64, count - 1) is None
    for size in range(len(encoded)):
        assert columns.decode_deltas(encoded[:size], 64, count) is None


def test_a_block_geometry_that_stands_for_too_many_values_is_not_read() -> None:
    for block, minis in ((0, 4), (128, 0), (1 << 20, 4), (128, 65), (132, 4), (1 << 63, 1)):
        header = encode_uvarint(block) + encode_uvarint(minis) + encode_uvarint(500) + encode_svarint(0)
        assert columns.decode_deltas(header + bytes(200), 64, 500) is None
