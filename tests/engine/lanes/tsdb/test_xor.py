"""Float chunks, twin and compiled: every code by hand, bytes that are none, and that both agree on all of them."""

from __future__ import annotations

import importlib
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import BadObject, LimitExceeded, Truncated
from engine.formats.prometheus.chunks import _xor_py
from tests.engine.lanes.tsdb.factories import packed, svarint

ONE = f"{0x3FF0000000000000:064b}"


def chunk(count: int, bits: str, start: int = 5) -> bytes:
    return count.to_bytes(2, "big") + svarint(start) + packed(bits)


@pytest.fixture(scope="module", params=["_xor_py", "_xor"])
def codec(request: pytest.FixtureRequest) -> ModuleType:
    """The twin and, where it is built, the compiled codec."""
    try:
        return importlib.import_module(f"engine.formats.prometheus.chunks.{request.param}")
    except ModuleNotFoundError:
        pytest.skip("the kernels are not built")


def decoded(codec: ModuleType, data: bytes) -> list[tuple[int, int]]:
    times, values = codec.decode_xor(data)
    return list(zip(times.tolist(), values.tolist(), strict=True))


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("0", 0),
        ("10" + f"{8192:014b}", 8192),
        ("10" + f"{8193:014b}", -8191),
        ("10" + f"{(1 << 14) - 1:014b}", -1),
        ("110" + f"{65536:017b}", 65536),
        ("110" + f"{65537:017b}", -65535),
        ("1110" + f"{524288:020b}", 524288),
        ("1110" + f"{524289:020b}", -524287),
        ("1111" + f"{(1 << 64) - 7:064b}", -7),
        ("1111" + f"{1 << 40:064b}", 1 << 40),
    ],
)
def test_each_code_of_a_change_of_the_time_step(codec: ModuleType, code: str, change: int) -> None:
    data = chunk(3, ONE + f"{100:08b}0" + code + "0")
    assert [time for time, _ in decoded(codec, data)] == [5, 105, 205 + change]


def test_each_code_of_a_value(codec: ModuleType) -> None:
    one = 0x3FF0000000000000
    new_window = "11" + f"{12:05b}" + f"{4:06b}" + "1011"
    widest = "11" + "00000" + "000000" + f"{0xFFFFFFFFFFFFFFFF:064b}"
    bits = ONE + f"{1:08b}" + new_window + "0" + "10" + "0001" + "0" + "0" + "0" + widest
    assert [value for _, value in decoded(codec, chunk(5, bits))] == [
        one,
        one ^ 0b1011 << 48,
        one ^ 0b1010 << 48,
        one ^ 0b1010 << 48,
        one ^ 0b1010 << 48 ^ 0xFFFFFFFFFFFFFFFF,
    ]


def test_times_wrap_at_64_bits(codec: ModuleType) -> None:
    step = b"\xff" * 9 + b"\x01"
    bits = ONE + "".join(f"{byte:08b}" for byte in step) + "0" + "0" + "0"
    assert [time for time, _ in decoded(codec, chunk(3, bits, start=-(1 << 63)))] == [
        -(1 << 63),
        (1 << 63) - 1,
        (1 << 63) - 2,
    ]


def test_up_to_eight_zero_bits_may_follow(codec: ModuleType) -> None:
    assert decoded(codec, chunk(1, ONE)) == decoded(codec, chunk(1, ONE + "0" * 8)) == [(5, 0x3FF0000000000000)]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x00\x00",
        chunk(0, ONE),
        chunk(2, ONE),
        chunk(1, ONE[:-8]),
        chunk(1, ONE + "00000001"),
        chunk(1, ONE + "0" * 16),
        chunk(2, ONE + f"{1:08b}" + "10" + "0" * 64),
        chunk(2, ONE + f"{1:08b}" + "11" + f"{31:05b}" + f"{34:06b}" + "1" * 34),
        b"\x00\x01" + b"\xff" * 10 + packed(ONE),
        b"\x00\x02" + b"\x0a" + packed(ONE) + b"\xff" * 9 + b"\x02\x00",
    ],
    ids=[
        "nothing",
        "half a count",
        "no sample, no bytes",
        "no sample",
        "one sample too few",
        "half a value",
        "a bit after the end",
        "two bytes after the end",
        "a window that was never opened",
        "a window wider than a value",
        "a first time too long",
        "a step too long",
    ],
)
def test_damage_is_refused(codec: ModuleType, data: bytes) -> None:
    with pytest.raises(BadObject):
        codec.decode_xor(data)


def test_a_count_that_lies_reserves_nothing(codec: ModuleType) -> None:
    with pytest.raises(LimitExceeded):
        codec.decode_xor(chunk(65535, ONE + "0" * 800))


def test_a_chunk_cut_anywhere_is_refused(codec: ModuleType) -> None:
    data = chunk(5, ONE + f"{1:08b}" + "11" + f"{12:05b}" + f"{4:06b}" + "1011" + "0100001" * 3)
    assert len(decoded(codec, data)) == 5
    for end in range(len(data)):
        with pytest.raises((Truncated, LimitExceeded)):
            codec.decode_xor(data[:end])


@given(st.integers(0, 40), st.binary(max_size=120))
def test_any_bytes_are_samples_or_a_typed_error(codec: ModuleType, count: int, data: bytes) -> None:
    found: object
    try:
        found = tuple(map(len, codec.decode_xor(count.to_bytes(2, "big") + data)))
    except BadObject as error:
        found = error.offset
    assert found == (count, count) or found in range(-1, len(data) + 3)


INT64 = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-70_000, 70_000), st.just(15_000))
BITS = st.one_of(st.integers(0, (1 << 64) - 1), st.integers(0, 16).map(lambda shift: 0x3FF << shift), st.just(1 << 63))


@given(st.lists(st.tuples(INT64, BITS), min_size=1, max_size=60))
def test_any_samples_are_read_back(codec: ModuleType, samples: list[tuple[int, int]]) -> None:
    times = np.array([time for time, _ in samples], np.int64)
    values = np.array([value for _, value in samples], np.uint64)
    assert decoded(codec, codec.encode_xor(times, values)) == samples


@pytest.mark.parametrize(
    ("times", "values", "expected"),
    [
        ([5], [1], chunk(1, f"{1:064b}" + "0" * 8)),
        ([5, 6], [0, 0], chunk(2, "0" * 64 + f"{1:08b}" + "0")),
        ([5, 6], [0, 3 << 40], chunk(2, "0" * 64 + f"{1:08b}" + "11" + f"{22:05b}" + f"{2:06b}" + "11")),
        # Only 31 leading zeros can be said, so that a small difference takes 33 bits.
        ([5, 6], [0, 1], chunk(2, "0" * 64 + f"{1:08b}" + "11" + f"{31:05b}" + f"{33:06b}" + f"{1:033b}")),
        # A width that is a multiple of eight, and the end of a byte: a zero byte follows.
        (
            [5, 6, 7, 8, 9],
            [0, 0xFF << 40, 0xFF << 40, 0xFF << 40, 0],
            chunk(5, "0" * 64 + f"{1:08b}" + "11" + f"{16:05b}" + f"{8:06b}" + "1" * 8 + "00" + "00" + "010" + "1" * 8),
        ),
    ],
)
def test_each_choice_of_the_writer(codec: ModuleType, times: list[int], values: list[int], expected: bytes) -> None:
    found = codec.encode_xor(np.array(times), np.array(values, np.uint64))
    assert found.startswith(expected)
    assert found[len(expected) :] in (b"", b"\0")
    assert found == expected or len(values) == 5


def test_a_zero_byte_follows_exactly_where_the_last_step_was_a_whole_byte(codec: ModuleType) -> None:
    single = codec.encode_xor(np.array([5]), np.array([1], np.uint64))
    assert len(single) == 2 + 1 + 8 + 1
    for widths in range(1, 9):
        # A first window of ``widths`` bits, then zeros until the end of a byte is reached by a bit, not by a byte.
        ones = (1 << widths) - 1
        for repeats in range(5):
            values = np.array([0, *[ones << 40] * (repeats + 1)], np.uint64)
            data = codec.encode_xor(np.arange(len(values)), values)
            bits = 16 + 8 + 64 + 8 + 13 + widths + 2 * repeats
            is_flush_with_bytes = bits % 8 == 0 and repeats == 0 and widths % 8 == 0
            assert len(data) == -(-bits // 8) + is_flush_with_bytes


def outcome(codec: ModuleType, data: bytes) -> object:
    try:
        return decoded(codec, data)
    except BadObject as error:
        return type(error)


@pytest.mark.slow
def test_both_give_the_same_samples_or_the_same_error_whatever_is_changed() -> None:
    compiled = pytest.importorskip("engine.formats.prometheus.chunks._xor")
    draw = np.random.default_rng(7)
    kinds = set()
    for _ in range(25):
        count = int(draw.integers(1, 12))
        times = np.cumsum(draw.choice([15_000, 15_000, 15_001, 90_000, 1 << 30], count))
        values = draw.choice(np.array([0, 0x3FF << 52, 0x4045 << 48, 1, (1 << 64) - 1], np.uint64), count)
        data = _xor_py.encode_xor(times, values)
        assert compiled.encode_xor(times, values) == data
        for bit in range(8 * len(data)):
            changed = bytearray(data)
            changed[bit >> 3] ^= 128 >> (bit & 7)
            found = outcome(compiled, bytes(changed))
            assert found == outcome(_xor_py, bytes(changed))
            kinds.add(found if isinstance(found, type) else None)
        for end in range(len(data)):
            assert outcome(compiled, data[:end]) == outcome(_xor_py, data[:end])
    assert kinds == {None, BadObject, Truncated, LimitExceeded}


@given(st.lists(st.tuples(INT64, BITS), min_size=1, max_size=60))
def test_both_write_the_same_bytes(samples: list[tuple[int, int]]) -> None:
    compiled = pytest.importorskip("engine.formats.prometheus.chunks._xor")
    times = np.array([time for time, _ in samples], np.int64)
    values = np.array([value for _, value in samples], np.uint64)
    assert compiled.encode_xor(times, values) == _xor_py.encode_xor(times, values)


@pytest.mark.slow
def test_the_longest_chunk_has_room(codec: ModuleType) -> None:
    count = (1 << 16) - 1
    draw = np.random.default_rng(3)
    times = draw.integers(-(1 << 63), (1 << 63) - 1, count)
    values = draw.integers(0, (1 << 64) - 1, count, np.uint64)
    data = codec.encode_xor(times, values)
    assert len(data) > 65535 * 16
    found_times, found_values = codec.decode_xor(data)
    assert np.array_equal(found_times, times)
    assert np.array_equal(found_values, values)
    with pytest.raises(LimitExceeded):
        codec.encode_xor(np.zeros(count + 1, np.int64), np.zeros(count + 1, np.uint64))
    with pytest.raises(LimitExceeded):
        codec.encode_xor(np.zeros(2, np.int64), np.zeros(1, np.uint64))


FAR = "00" * 200
"""Samples that go on as before: what stands before them is far from the end, where the kernel takes another way."""


@pytest.mark.parametrize(
    "code",
    [
        *("0", "10" + f"{8192:014b}", "10" + f"{8193:014b}", "110" + f"{65537:017b}", "1110" + f"{524289:020b}"),
        "1111" + f"{(1 << 64) - 7:064b}",
    ],
)
@pytest.mark.parametrize(
    ("value", "samples", "is_sound"),
    [
        ("0", 1, True),
        ("10", 1, False),
        ("11" + f"{5:05b}{10:06b}" + "1" * 10 + "0" + "10" + "01" * 5, 2, True),
        ("11" + f"{0:05b}{0:06b}" + "10" * 32 + "0" + "10" + "01" * 32, 2, True),
        ("11" + f"{2:05b}{60:06b}" + "1" * 60, 1, True),
        ("11" + f"{31:05b}{40:06b}" + "1" * 40, 1, False),
    ],
)
def test_every_code_far_from_the_end_is_read_as_the_twin_reads_it(
    codec: ModuleType, code: str, value: str, samples: int, is_sound: bool
) -> None:
    data = chunk(2 + samples + len(FAR) // 2, ONE + f"{100:08b}0" + code + value + FAR)
    answers: list[object] = []
    for each in (_xor_py, codec):
        try:
            answers.append(decoded(each, data))
        except BadObject as error:
            answers.append((type(error), error.offset))
    assert answers[0] == answers[1]
    assert isinstance(answers[0], list) == is_sound
