"""Tombstones: intervals joined per series, real deletions, and damage."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import BadObject, ChecksumMismatch, LimitExceeded, Truncated, UnknownFormat
from engine.formats.prometheus import tombstones
from engine.formats.prometheus.block_reader import BlockReader
from engine.formats.prometheus.tombstones import decode_tombstones
from tests.engine.formats.profile_block.damage import flips, truncations
from tests.engine.lanes.tsdb.conftest import RealBlocks
from tests.engine.lanes.tsdb.factories import tombstones_bytes

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def test_no_entry_is_nine_bytes() -> None:
    assert tombstones_bytes() == bytes.fromhex("0130ba300100000000")
    assert len(decode_tombstones(tombstones_bytes())) == 0


def test_overlapping_and_adjacent_intervals_are_joined() -> None:
    found = decode_tombstones(tombstones_bytes((7, 20, 30), (3, 1, 1), (7, 5, 10), (7, 11, 12), (7, 8, 9), (7, 29, 40)))
    assert len(found) == 6
    assert list(found.series_ids()) == [3, 7]
    assert found.intervals(7) == [(5, 12), (20, 40)]
    assert found.intervals(3) == [(1, 1)]
    assert found.intervals(4) == []


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-20, 20), st.integers(0, 5))))
def test_the_times_of_each_series_are_those_of_its_entries(entries: list[tuple[int, int, int]]) -> None:
    found = decode_tombstones(tombstones_bytes(*((series, start, start + size) for series, start, size in entries)))
    for series in range(4):
        expected = {t for each, start, size in entries if each == series for t in range(start, start + size + 1)}
        intervals = found.intervals(series)
        assert [t for start, end in intervals for t in range(start, end + 1)] == sorted(expected)
        assert all(before[1] + 1 < after[0] for before, after in pairwise(intervals))


@given(st.integers(0, (1 << 64) - 1), INT64, INT64)
def test_all_of_64_bits_is_kept(series: int, first: int, second: int) -> None:
    start, end = sorted((first, second))
    assert decode_tombstones(tombstones_bytes((series, start, end))).intervals(series) == [(start, end)]


def test_damage_is_refused() -> None:
    data = tombstones_bytes((7, 20, 30), (300, -5, 1 << 40))
    for damaged in [*truncations(data), *(damaged for _, damaged in flips(data))]:
        with pytest.raises((ChecksumMismatch, Truncated, UnknownFormat)):
            decode_tombstones(damaged)
    with pytest.raises(BadObject, match="from 30 to 20"):
        decode_tombstones(tombstones_bytes((7, 30, 20)))


@pytest.mark.parametrize(("limit", "most"), [("ENTRIES_MAX", 1), ("FILE_BYTES_MAX", 12)])
def test_more_than_any_block_has_is_refused(monkeypatch: pytest.MonkeyPatch, limit: str, most: int) -> None:
    one, two = tombstones_bytes((7, 20, 30)), tombstones_bytes((7, 20, 30), (8, 20, 30))
    monkeypatch.setattr(tombstones, limit, most)
    assert len(decode_tombstones(one)) == 1
    with pytest.raises(LimitExceeded, match=rf"\b{most}\b"):
        decode_tombstones(two)


@pytest.mark.foreign_data
def test_tombstones_of_real_blocks_are_the_requested_deletions(all_real_blocks: dict[str, RealBlocks]) -> None:
    """All of go_goroutines; ``up`` for twenty minutes; node_cpu metrics from 6000 s to 9000 s of the first block."""
    start = 1_678_838_400_000
    for folder in all_real_blocks["tombstones"].folders():
        block = BlockReader(folder)
        assert len(block.tombstones)
        deleted = {}
        for series_id in block.tombstones.series_ids():
            series = block.index.series_by_id(series_id)
            deleted.setdefault(dict(series.labels)[b"__name__"], []).append(
                (series, block.tombstones.intervals(series_id))
            )
        for series, intervals in deleted[b"go_goroutines"]:
            ((first, last),) = intervals
            assert all(first <= meta.min_time_ms and meta.max_time_ms <= last for meta in series.chunks)
        for _, intervals in deleted.get(b"up", []):
            assert intervals == [(start + 600_000, start + 1_800_000)]
        assert {name for name in deleted if not name.startswith(b"node_cpu")} <= {b"go_goroutines", b"up"}
