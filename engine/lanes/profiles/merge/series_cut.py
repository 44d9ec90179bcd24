"""How much memory a dataset merge needs, and how a dataset that needs too much is cut into parts by series.

Rows stream, so what grows with a dataset are its symbols. A part is a stretch of series in label order; with it the
merge keeps, of every source, only the symbols the part's rows reach, so a part costs as much as the stacks it reaches.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.formats.profile_block.merge_model import (
    PROFILES,
    READ_BATCH_BYTES,
    ROW_GROUP_BYTES,
    SYMBOLS,
    WHOLE_DATASET_BYTES,
    DatasetSource,
)

SYMBOLS_EXPANSION = 8
"""Bytes in memory per byte of a symbols section: decoded, translated, and in the output."""
ROWS_EXPANSION = 20
"""Bytes in memory per byte of a profile table, up to what is read at once."""
DECODED_BATCH_BYTES = 3 * READ_BATCH_BYTES
"""What a batch of rows takes in memory with all its columns, and the stretch of the file it comes from."""
PART_SHARE_MIN = 4
"""A part may use a quarter of the budget at least, even where the largest source alone leaves less."""
STACK_SLOTS = 1 << 20
"""Stacks are counted in a bitmap of so many slots per source: exact up to so many stacks, an estimate beyond."""

_PARTITION_SPREAD = 2654435761
Slots = npt.NDArray[np.int64]


class SeriesReach(NamedTuple):
    """One series of a dataset over all its sources: its numbers in each source, and the stacks it reaches there."""

    numbers: dict[int, set[int]]
    slots: dict[int, Slots]


def estimate_bytes(sources: Sequence[DatasetSource]) -> int:
    """Return how much memory merging the sources whole takes."""
    return _fixed_bytes(sources) + sum(_symbols_bytes(source) for source in sources)


def stack_slots(partitions: npt.NDArray[np.uint64], stack_ids: npt.NDArray[np.uint64]) -> Slots:
    """Return the distinct bitmap slots of stacks given by partition and id."""
    with np.errstate(over="ignore"):
        mixed = stack_ids + partitions * np.uint64(_PARTITION_SPREAD)
    return np.unique(mixed % np.uint64(STACK_SLOTS)).astype(np.int64)


def cut_by_series(
    series: Iterable[SeriesReach],
    sources: Sequence[DatasetSource],
    stack_counts: Sequence[int],
    budget_bytes: int,
) -> list[list[set[int]]]:
    """Return the parts: per part and source, the series numbers that belong to it.

    ``series`` come in label order; ``stack_counts`` are the slots each source reaches in all. A series that is too
    large alone makes a part of its own.
    """
    whole_symbols = [_symbols_bytes(source) for source in sources]
    spare = budget_bytes - _fixed_bytes(sources) - max(whole_symbols, default=0)
    part = _Part([cost / max(count, 1) for cost, count in zip(whole_symbols, stack_counts, strict=True)])
    limit = max(spare, budget_bytes // PART_SHARE_MIN)
    parts = [part]
    for reach in series:
        if not part.is_empty and part.bytes_with(reach) > limit:
            part = part.next()
            parts.append(part)
        part.add(reach)
    return [part.numbers for part in parts]


class _Part:
    """A part as it grows: which stacks of every source it reaches, and what they cost."""

    def __init__(self, slot_bytes: Sequence[float]) -> None:
        self.numbers: list[set[int]] = [set() for _ in slot_bytes]
        self.is_empty = True
        self._slot_bytes = slot_bytes
        self._reached: dict[int, npt.NDArray[np.bool_]] = {}
        self._bytes = 0.0

    def bytes_with(self, reach: SeriesReach) -> float:
        """Return what the part would cost with this series too."""
        return self._bytes + sum(
            self._slot_bytes[source] * int(np.count_nonzero(~self._bitmap(source)[slots]))
            for source, slots in reach.slots.items()
        )

    def add(self, reach: SeriesReach) -> None:
        self._bytes = self.bytes_with(reach)
        self.is_empty = False
        for source, slots in reach.slots.items():
            self._bitmap(source)[slots] = True
        for source, numbers in reach.numbers.items():
            self.numbers[source] |= numbers

    def next(self) -> _Part:
        """Return an empty part; this one's bitmaps are given up."""
        self._reached.clear()
        return _Part(self._slot_bytes)

    def _bitmap(self, source: int) -> npt.NDArray[np.bool_]:
        if source not in self._reached:
            self._reached[source] = np.zeros(STACK_SLOTS, dtype=np.bool_)
        return self._reached[source]


def _symbols_bytes(source: DatasetSource) -> int:
    return source.section_bounds(SYMBOLS)[1] * SYMBOLS_EXPANSION


def _fixed_bytes(sources: Iterable[DatasetSource]) -> int:
    """Return what stays the same however the dataset is cut: buffers for rows of every source and of the output."""
    per_source = (
        min(source.section_bounds(PROFILES)[1] * ROWS_EXPANSION, DECODED_BATCH_BYTES)
        + (source.size if source.size <= WHOLE_DATASET_BYTES else 0)
        for source in sources
    )
    rows = sum(per_source)
    return rows + min(rows, 2 * ROW_GROUP_BYTES)
