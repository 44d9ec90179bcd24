"""Series entries, twin and compiled: both agree on what is read, written and refused."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import BadObject, BadReference, LimitExceeded, Truncated
from engine.formats.prometheus.errors import OutOfOrder
from engine.formats.prometheus.index import _series_entries_py
from engine.formats.prometheus.index.index_layout import BATCH_BYTES_MAX, SERIES_BYTES_MAX
from engine.formats.prometheus.index.series_batch import SeriesBatch, series_batch
from engine.formats.prometheus.model import INT64_MAX, ChunkMeta
from tests.engine.formats.profile_block.damage import flips, truncations
from tests.engine.lanes.tsdb.factories import sealed, series_body, uvarint

SYMBOLS = 40
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
Rows = list[tuple[list[int], list[ChunkMeta]]]


@pytest.fixture(scope="module", params=["_series_entries_py", "_series_entries"])
def entries(request: pytest.FixtureRequest) -> ModuleType:
    """The twin and, where it is built, the compiled reader and writer."""
    return implementation(request.param)


def implementation(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"engine.formats.prometheus.index.{name}")
    except ModuleNotFoundError:
        pytest.skip("the kernels are not built")


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    """Label sets that ascend, each with chunks whose times and references do."""
    found, ref = [], 0
    names = st.sets(st.integers(1, SYMBOLS - 1), max_size=5).map(sorted)
    label_sets = names.flatmap(
        lambda each: st.tuples(*(st.tuples(st.just(n), st.integers(0, SYMBOLS - 1)) for n in each))
    )
    for labels in sorted(
        {tuple(number for pair in each for number in pair) for each in draw(st.lists(label_sets, max_size=6))}
    ):
        edges = sorted(draw(st.sets(INT64, max_size=6)))
        chunks = []
        for start, end in zip(edges[::2], edges[1::2], strict=False):
            if chunks and start - chunks[-1].max_time_ms > INT64_MAX:
                break
            ref += draw(st.integers(1, 1 << 60))
            chunks.append(ChunkMeta(start, end, ref))
        found.append((list(labels), chunks))
    return found


def plain(batch: SeriesBatch) -> list[object]:
    return [each.tolist() if isinstance(each, np.ndarray) else each for each in batch]


def read(entries: ModuleType, data: bytes, position: int = 0, most: int = 100, after: object = None) -> SeriesBatch:
    found = entries.decode_series(memoryview(data), position, len(data), SYMBOLS, 1, after, most)
    assert isinstance(found, SeriesBatch)
    return found


@pytest.mark.slow
@given(rows(), st.integers(0, 40))
def test_what_is_written_is_read_back_and_both_write_the_same(found: Rows, position: int) -> None:
    batch = series_batch(found)
    data, ids = _series_entries_py.encode_series(batch, position, None)
    compiled = implementation("_series_entries")
    compiled_data, compiled_ids = compiled.encode_series(batch, position, None)
    assert (compiled_data, compiled_ids.tolist()) == (data, ids.tolist())
    for each in (_series_entries_py, compiled):
        again = read(each, bytes(position) + data, position)
        assert plain(again)[2:] == plain(batch)[2:]
        assert again.ids.tolist() == ids.tolist()
        assert again.next_position == position + len(data)


def test_chunks_further_apart_than_63_bits_are_not_written(entries: ModuleType) -> None:
    """A reader takes them for chunks that do not ascend."""
    near, far = ([([1, 2], [ChunkMeta(-5, -4, 8), ChunkMeta(time, time, 40)])] for time in (2**63 - 5, 2**63 - 4))
    assert read(entries, entries.encode_series(series_batch(near), 0, None)[0]).max_times.tolist() == [-4, 2**63 - 5]
    with pytest.raises(OutOfOrder):
        entries.encode_series(series_batch(far), 0, None)


def test_a_batch_ends_at_its_limit_and_the_next_continues(entries: ModuleType) -> None:
    rows_given = [([1, value], [ChunkMeta(1, 2, 10 + value)]) for value in range(2, 9)]
    data, ids = entries.encode_series(series_batch(rows_given), 0, None)
    first = read(entries, data, most=3)
    second = read(entries, data, first.next_position, after=first.label_refs_of(2))
    assert [*first.ids.tolist(), *second.ids.tolist()] == ids.tolist()
    with pytest.raises(OutOfOrder):
        read(entries, data, after=(1, 2))


def outcome(entries: ModuleType, data: bytes) -> object:
    try:
        return plain(read(entries, data))
    except BadObject as error:
        return type(error)


def entry(body: bytes) -> bytes:
    return uvarint(len(body)) + sealed(body)


ENTRY = series_body([1, 3, 2, 4], [(-1000, 1030, 8), (1040, 1 << 40, 40), ((1 << 40) + 1, (1 << 40) + 1, 1 << 33)])


@pytest.mark.parametrize("damage", [flips, lambda data: enumerate(truncations(data))])
def test_both_refuse_the_same_when_checksums_are_right(damage: Callable[[bytes], object]) -> None:
    compiled = implementation("_series_entries")
    kinds = set()
    for _, body in damage(ENTRY):  # type: ignore[attr-defined]
        for changed in (body, body + b"\xff" * 12, body.replace(b"\x02", b"\x07")):
            found = outcome(compiled, entry(changed))
            assert found == outcome(_series_entries_py, entry(changed))
            kinds.add(found if isinstance(found, type) else None)
    assert len(kinds) > 1


@given(st.binary(max_size=60))
def test_both_agree_on_any_bytes(body: bytes) -> None:
    compiled = implementation("_series_entries")
    for data in (body, entry(body), entry(b"\x01\x01\x03" + body), entry(b"\x00" + body)):
        assert outcome(compiled, data) == outcome(_series_entries_py, data)


BIG = uvarint((1 << 64) - 1)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (entry(BIG), LimitExceeded),
        (entry(uvarint(1) + uvarint(0) + uvarint(3) + b"\x00"), BadReference),
        (entry(uvarint(1) + uvarint(SYMBOLS) + uvarint(3) + b"\x00"), BadReference),
        (entry(b"\x00" + BIG), LimitExceeded),
        (entry(b"\x00\x02" + b"\x02\x00\x08" + b"\x00\x00\x02"), OutOfOrder),
        (entry(b"\x00\x02" + b"\x02\x00\x08" + BIG + b"\x00\x02"), OutOfOrder),
        (entry(b"\x00\x01" + b"\x02" + BIG + b"\x08"), BadObject),
        (entry(b"\x00\x02" + b"\x02\x00" + b"\x00" + b"\x01\x00\x01"), BadReference),
        (entry(b"\x00\x02" + b"\x02\x00" + BIG + b"\x01\x00\x02"), BadReference),
        (entry(b"\x00\x01" + b"\xff" * 11 + b"\x00\x00"), BadObject),
        (uvarint(SERIES_BYTES_MAX + 1) + bytes(20), LimitExceeded),
        (uvarint(100) + bytes(20), Truncated),
        (entry(b"\x00\x00") + b"\x01" + bytes(9), BadObject),
        (entry(b"\x00\x00") + bytes(9), Truncated),
        (entry(b"\x00\x00")[:-1] + b"\x7f", BadObject),
    ],
)
def test_damage_is_refused(entries: ModuleType, data: bytes, kind: type[BadObject]) -> None:
    with pytest.raises(kind):
        read(entries, data)


def test_long_series_make_short_batches(entries: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of one millisecond, one right after the other, take three bytes each."""
    limit = BATCH_BYTES_MAX
    if entries is _series_entries_py:  # whose limit can be changed, and whose time matters
        limit = 3000
        monkeypatch.setattr(entries, "BATCH_BYTES_MAX", limit)
    count = limit // 3
    data = b""
    for value in range(2):
        body = bytes([1, 1, value]) + uvarint(count) + b"\x00\x00\x08" + b"\x01\x00\x02" * (count - 1)
        data += bytes(-len(data) % 16) + entry(body)
    found = read(entries, data)
    assert len(found.ids) == 1
    assert len(found.chunk_refs) == count
    assert found.next_position < len(data)


def test_arrays_that_do_not_belong_together_are_not_followed() -> None:
    compiled = implementation("_series_entries")
    batch = series_batch([([1, 2], [ChunkMeta(1, 2, 8)])])
    for changes in (
        {"label_starts": np.array([0, 2])},
        {"label_starts": np.array([0])},
        {"chunk_starts": np.array([-1, 1])},
        {"chunk_starts": np.array([1, 0])},
        {"max_times": np.empty(0, np.int64)},
    ):
        with pytest.raises(ValueError, match="batch"):
            compiled.encode_series(batch._replace(**changes), 0, None)
