"""Cutting a dataset by series: contiguous parts that cover every series once and fit, as far as a series can."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.formats.profile_block.merge_model import WHOLE_DATASET_BYTES, DatasetSource
from engine.lanes.profiles.merge.series_cut import (
    STACK_SLOTS,
    SYMBOLS_EXPANSION,
    SeriesReach,
    cut_by_series,
    estimate_bytes,
    stack_slots,
)
from engine.lanes.profiles.merge.series_reach import cut_dataset
from tests.engine.formats.profile_block.factories import TIME_NS, make_sections, row, series_labels


def source(profiles: int = 0, symbols: int = 1000) -> DatasetSource:
    """A source known by the sizes of its sections only."""
    size = profiles + 10 + symbols
    return DatasetSource(
        object_name="x", table_of_contents=(0, profiles, profiles + 10), size=size, read=lambda offset, length: b""
    )


def reach(position: int, *stacks: int) -> SeriesReach:
    return SeriesReach({0: {position}}, {0: np.array(sorted(stacks), dtype=np.int64)})


def sizes(parts: list[list[set[int]]]) -> list[list[int]]:
    return [sorted(part[0]) for part in parts]


def test_symbols_weigh_most_and_rows_are_bounded() -> None:
    assert estimate_bytes([source(symbols=2000)]) - estimate_bytes([source(symbols=1000)]) == 1000 * (
        SYMBOLS_EXPANSION + 2
    )
    huge = estimate_bytes([source(profiles=1 << 40)])
    assert huge == estimate_bytes([source(profiles=1 << 50)])
    assert huge < 64 << 20


def test_a_dataset_that_fits_is_one_part() -> None:
    series = [reach(position, position) for position in range(5)]
    assert sizes(cut_by_series(series, [source()], [5], 1 << 30)) == [[0, 1, 2, 3, 4]]


def test_series_with_stacks_of_their_own_are_cut_apart() -> None:
    symbols = 1 << 20
    series = [reach(position, *range(position * 10, position * 10 + 10)) for position in range(8)]
    parts = cut_by_series(series, [source(symbols=symbols)], [80], symbols * SYMBOLS_EXPANSION)
    assert sizes(parts) == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_series_with_the_same_stacks_stay_together() -> None:
    symbols = 1 << 20
    series = [reach(position, *range(10)) for position in range(8)]
    assert sizes(cut_by_series(series, [source(symbols=symbols)], [40], symbols * SYMBOLS_EXPANSION)) == [[*range(8)]]


def test_a_series_too_large_for_any_part_is_a_part_alone() -> None:
    series = [reach(0, 1), reach(1, *range(100)), reach(2, 1)]
    assert sizes(cut_by_series(series, [source(symbols=1 << 20)], [100], 1000)) == [[0], [1], [2]]


def test_no_series_make_one_empty_part() -> None:
    assert cut_by_series([], [source(), source()], [0, 0], 1000) == [[set(), set()]]


@given(st.lists(st.sets(st.integers(0, 60), max_size=20), max_size=20), st.integers(0, 1 << 16))
def test_parts_are_contiguous_and_cover_every_series_once(stacks: list[set[int]], budget: int) -> None:
    series = [reach(position, *entry) for position, entry in enumerate(stacks)]
    parts = sizes(cut_by_series(series, [source()], [61], budget))
    assert [position for part in parts for position in part] == list(range(len(stacks)))
    assert len(parts) == 1 or all(parts)


def test_stacks_of_other_partitions_are_other_stacks() -> None:
    ids = np.array([1, 1, 2, 1], dtype=np.uint64)
    partitions = np.array([0, 0, 0, (1 << 64) - 1], dtype=np.uint64)
    slots = stack_slots(partitions, ids)
    assert len(slots) == 3
    assert slots.max() < STACK_SLOTS


@pytest.mark.slow
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abcdef")), max_size=8), min_size=1, max_size=3),
    st.integers(0, 40_000),
)
@settings(max_examples=30)
def test_reading_a_dataset_finds_every_series_once(sources: list[list[tuple[int, str]]], budget: int) -> None:
    made = [
        make_sections(
            row((name, "main"), labels=series_labels(pod=str(pod)), id=number, time_ns=TIME_NS + number)
            for number, (pod, name) in enumerate(entries)
        )
        for entries in sources
    ]
    parts = cut_dataset([sections.source() for sections in made], budget, lambda: False)
    for number, sections in enumerate(made):
        kept = [position for part in parts for position in sorted(part[number])]
        assert kept == list(range(len(sections.series)))
    in_order = [
        sorted({made[number].series[p].labels for number, kept in enumerate(part) for p in kept}) for part in parts
    ]
    assert all(left[-1] < right[0] for left, right in pairwise(in_order) if left and right)


@pytest.mark.slow
def test_small_datasets_are_counted_with_the_buffer_they_are_read_into() -> None:
    below = source(profiles=WHOLE_DATASET_BYTES - 1010)
    above = source(profiles=WHOLE_DATASET_BYTES - 1009)
    assert estimate_bytes([below]) > estimate_bytes([above])
