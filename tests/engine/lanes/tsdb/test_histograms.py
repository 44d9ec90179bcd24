"""Chunks of native histograms: layouts by hand, real ones by their own sums, and bytes that are none."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import BadObject, LimitExceeded, UnknownFormat
from engine.formats.prometheus.block_reader import BlockReader
from engine.formats.prometheus.chunks.bit_stream import BitReader
from engine.formats.prometheus.chunks.histogram_layout import decode_layout
from engine.formats.prometheus.chunks.histogram_model import (
    CUSTOM_BUCKETS_SCHEMA,
    CounterReset,
    HistogramChunk,
    HistogramLayout,
    HistogramSample,
    Span,
)
from engine.formats.prometheus.chunks.histograms import decode_histograms, encode_histograms
from engine.formats.prometheus.model import HISTOGRAM_ENCODINGS, STALE_NAN
from tests.engine.lanes.tsdb.conftest import RealBlocks
from tests.engine.lanes.tsdb.factories import packed

WIDTHS = (0, 3, 6, 9, 12, 18, 25, 56, 64)
# Threshold 0, schema 3, one positive span of two buckets at index -1, no negative span.
LAYOUT = "00000000" + "10" + "011" + ("10" + "001" + "10" + "010" + "10" + "111") + "0"


def bits_of(value: float) -> int:
    return int.from_bytes(struct.pack(">d", value), "big")


def code(value: int, ones: int) -> str:
    width = WIDTHS[ones]
    return "1" * ones + ("0" if ones < 8 else "") + (f"{value & (1 << width) - 1:0{width}b}" if width else "")


def chunk(count: int, bits: str, flags: int = 0) -> bytes:
    return count.to_bytes(2, "big") + bytes([flags]) + packed(bits)


@pytest.mark.parametrize("ones", range(9))
def test_each_width_of_the_number_code_at_its_edges(ones: int) -> None:
    width = WIDTHS[ones]
    highest = (1 << width) - 1
    assert BitReader(packed(code(highest, ones))).vuint() == highest
    if ones == 0:
        signed = [0]
    elif ones == 8:
        signed = [-(1 << 63), -1, 0, (1 << 63) - 1]
    else:
        signed = [-(1 << width - 1) + 1, -1, 0, 1 << width - 1]
    for value in signed:
        assert BitReader(packed(code(value, ones))).vint() == value


@pytest.mark.parametrize(
    ("bits", "threshold"),
    [
        ("00000000", 0.0),
        (f"{1:08b}", 2.0**-243),
        (f"{244:08b}", 1.0),
        (f"{254:08b}", 2.0**10),
        (f"{255:08b}{bits_of(1e-128):064b}", 1e-128),
    ],
)
def test_each_code_of_the_zero_threshold(bits: str, threshold: float) -> None:
    layout = decode_layout(BitReader(packed(bits + "000")))
    assert layout == HistogramLayout(0, bits_of(threshold))


def test_custom_bounds_are_read_in_both_forms() -> None:
    schema = code(CUSTOM_BUCKETS_SCHEMA, 3)
    bounds = code(3, 1) + code(1, 1) + code(2501, 4) + "0" + f"{bits_of(1e9):064b}"
    layout = decode_layout(BitReader(packed("00000000" + schema + "00" + bounds)))
    assert [struct.unpack(">d", bound.to_bytes(8, "big"))[0] for bound in layout.custom_bounds_bits] == [0.0, 2.5, 1e9]


def test_integer_histograms_have_absolute_buckets() -> None:
    first = code(1000, 4) + code(5, 1) + code(1, 1) + f"{bits_of(7.0):064b}" + code(3, 1) + code(-2, 1)
    # Ten later; three more observations; buckets 3 to 5 and 1 to 2, stored as 3 to 5 and -2 to -3.
    second = code(10, 3) + code(3, 1) + "0" + "0" + code(2, 1) + code(-1, 1)
    found = decode_histograms(2, chunk(2, LAYOUT + first + second, flags=0x80))
    assert (found.is_float, found.counter_reset) == (False, CounterReset.RESET)
    assert found.layout == HistogramLayout(3, 0, (Span(-1, 2),))
    assert found.samples == ((1000, 5, 1, bits_of(7.0), (3, 1)), (1010, 8, 1, bits_of(7.0), (5, 2)))


def test_float_histograms_are_columns_of_bits() -> None:
    first = code(1000, 4) + "".join(f"{bits_of(value):064b}" for value in (5.5, 1.0, 7.0, 3.5, 1.0))
    found = decode_histograms(3, chunk(2, LAYOUT + first + code(10, 3) + "0" * 5, flags=0xC0))
    assert (found.is_float, found.counter_reset) == (True, CounterReset.GAUGE)
    assert [sample.time_ms for sample in found.samples] == [1000, 1010]
    for sample in found.samples:
        assert sample[1:4] == (bits_of(5.5), bits_of(1.0), bits_of(7.0))
        assert sample.buckets == (bits_of(3.5), bits_of(1.0))


def test_a_stale_marker_has_no_buckets_and_only_stale_markers_follow() -> None:
    stale = code(1000, 4) + "00" + f"{STALE_NAN:064b}"
    again = code(10, 3) + "00" + "0"
    found = decode_histograms(2, chunk(2, LAYOUT + stale + again))
    assert [(sample.time_ms, sample.is_stale, sample.buckets) for sample in found.samples] == [
        (1000, True, ()),
        (1010, True, ()),
    ]
    alive = code(10, 3) + "00" + "11" + "00000" + "000000" + f"{STALE_NAN:064b}" + "00"
    with pytest.raises(BadObject, match="follows a staleness marker"):
        decode_histograms(2, chunk(2, LAYOUT + stale + alive))


@pytest.mark.parametrize(
    ("encoding", "data", "kind"),
    [
        (1, chunk(1, LAYOUT), UnknownFormat),
        (2, b"\x00\x01", BadObject),
        (2, chunk(0, LAYOUT), BadObject),
        (2, chunk(1, LAYOUT, flags=1), UnknownFormat),
        (2, chunk(65535, LAYOUT), LimitExceeded),
        (2, chunk(1, "00000000" + "0" + code(1, 1) + code(1 << 62, 8) + "0" + "0" * 70), LimitExceeded),
        (3, chunk(1, "00000000" + "0" + code(1, 1) + code(4, 1) + "0" + "0" * 200), LimitExceeded),
        (2, chunk(1, "00000000" + "0" + code((1 << 64) - 1, 8) + "0" * 100), BadObject),
        (2, chunk(1, LAYOUT + code(1000, 4) + "00" + "0" * 64 + "00" + "0" * 16), BadObject),
    ],
    ids=[
        "floats",
        "too short for a header",
        "no sample",
        "unknown flags",
        "samples without end",
        "a span without end",
        "float buckets that have no room",
        "spans without end",
        "bytes after the end",
    ],
)
def test_damage_is_refused(encoding: int, data: bytes, kind: type[BadObject]) -> None:
    with pytest.raises(kind):
        decode_histograms(encoding, data)


@given(st.sampled_from([2, 3]), st.integers(1, 20), st.binary(max_size=200))
def test_any_bytes_are_histograms_or_a_typed_error(encoding: int, count: int, data: bytes) -> None:
    found: object
    try:
        found = (len(decode_histograms(encoding, count.to_bytes(2, "big") + data).samples),)
    except BadObject as error:
        found = error.offset
    assert found == (count,) or found in range(-1, len(data) + 3)


@pytest.mark.foreign_data
def test_real_integer_histograms_add_up(all_real_blocks: dict[str, RealBlocks]) -> None:
    checked = 0
    for folder in all_real_blocks["stale-and-histograms"].folders():
        block = BlockReader(folder)
        for meta in (meta for series in block.index.series() for meta in series.chunks):
            chunk = block.chunk(meta)
            if chunk.encoding not in HISTOGRAM_ENCODINGS:
                continue
            found = block.histograms(meta, chunk)
            assert found.samples[0].time_ms == meta.min_time_ms
            assert found.samples[-1].time_ms == meta.max_time_ms
            if not found.is_float:
                for sample in found.samples:
                    assert sample.observations == sample.zero_count + sum(sample.buckets)
                    checked += 1
    assert checked > 1000


SPANS = st.lists(st.builds(Span, st.integers(-500, 500), st.integers(0, 3)), max_size=3).map(tuple)
FLOATS = st.one_of(
    st.floats(width=64).map(bits_of), st.integers(0, (1 << 64) - 1).filter(lambda bits: bits != STALE_NAN)
)
BOUNDS = st.one_of(FLOATS, st.integers(0, 40_000_000).map(lambda thousandths: bits_of(thousandths / 1000)))
THRESHOLDS = st.one_of(FLOATS, st.integers(-250, 12).map(lambda exponent: bits_of(2.0**exponent)), st.just(0))
INT64 = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-300, 300))
UINT64 = st.one_of(st.integers(0, (1 << 64) - 1), st.integers(0, 300))


@st.composite
def chunks(draw: st.DrawFn) -> HistogramChunk:
    is_float = draw(st.booleans())
    schema = draw(st.sampled_from([-4, 0, 3, 8, CUSTOM_BUCKETS_SCHEMA]))
    bounds = tuple(draw(st.lists(BOUNDS, max_size=4))) if schema == CUSTOM_BUCKETS_SCHEMA else ()
    layout = HistogramLayout(schema, draw(THRESHOLDS), draw(SPANS), draw(SPANS), bounds)
    size = layout.positive_buckets + layout.negative_buckets
    counts, bucket = (FLOATS, FLOATS) if is_float else (UINT64, INT64)
    alive = st.builds(
        HistogramSample, INT64, counts, counts, FLOATS, st.lists(bucket, min_size=size, max_size=size).map(tuple)
    )
    stale = st.builds(HistogramSample, INT64, counts, counts, st.just(STALE_NAN), st.just(()))
    samples = (*draw(st.lists(alive, max_size=5)), *draw(st.lists(stale, max_size=2)))
    return HistogramChunk(is_float, draw(st.sampled_from(CounterReset)), layout, samples or (draw(stale),))


@given(chunks())
def test_any_histograms_are_read_back(chunk: HistogramChunk) -> None:
    assert decode_histograms(3 if chunk.is_float else 2, encode_histograms(chunk)) == chunk


def test_histograms_that_fit_no_chunk_are_not_written() -> None:
    layout = HistogramLayout(0, 0, (Span(0, 1),))
    alive, stale = HistogramSample(1, 1, 0, 5, (1,)), HistogramSample(1, 0, 0, STALE_NAN)
    for samples in [(), (alive._replace(buckets=()),), (stale._replace(buckets=(1,)),), (stale, alive)]:
        with pytest.raises(BadObject):
            encode_histograms(HistogramChunk(False, CounterReset.UNKNOWN, layout, samples))
