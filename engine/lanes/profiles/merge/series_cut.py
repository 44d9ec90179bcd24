"""Estimate the memory of a dataset merge, and split a dataset that exceeds its budget into parts by series. No I/O.

Rows are streamed, so memory grows with the symbols of a dataset. A part is a range of series in label order. A merge of
a part keeps only the symbols that its rows reference, so its cost is proportional to the stacks it references.
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
"""Memory bytes per byte of a symbols section: decoded, translated and written."""
ROWS_EXPANSION = 20
"""Memory bytes per byte of a profile table, up to one batch."""
DECODED_BATCH_BYTES = 3 * READ_BATCH_BYTES
"""Memory of a batch of rows with all columns, and of the file range it was read from."""
PART_SHARE_MIN = 4
"""Divisor of the budget: a part may use at least a quarter of it, even if the largest source leaves less."""
STACK_SLOTS = 1 << 20
"""Slots of the bitmap that counts stacks per source: exact up to this number of stacks, an estimate above."""

_PARTITION_SPREAD = 2654435761
Slots = npt.NDArray[np.int64]


class SeriesReach(NamedTuple):
    """One series over all sources of a dataset: its numbers and the stacks it references in each source."""

    numbers: dict[int, set[int]]
    slots: dict[int, Slots]


def estimate_bytes(sources: Sequence[DatasetSource]) -> int:
    """Return the estimated memory of a merge of the whole sources, in bytes."""
    return _fixed_bytes(sources) + sum(_symbols_bytes(source) for source in sources)


def stack_slots(partitions: npt.NDArray[np.uint64], stack_ids: npt.NDArray[np.uint64]) -> Slots:
    """Return the distinct bitmap slots of stacks, given by symbol partition and id."""
    with np.errstate(over="ignore"):
        mixed = stack_ids + partitions * np.uint64(_PARTITION_SPREAD)
    return np.unique(mixed % np.uint64(STACK_SLOTS)).astype(np.int64)


def cut_by_series(
    series: Iterable[SeriesReach],
    sources: Sequence[DatasetSource],
    stack_counts: Sequence[int],
    budget_bytes: int,
) -> list[list[set[int]]]:
    """Return the series numbers of each part, by source.

    ``series`` is in label order; ``stack_counts`` is the total number of slots per source. A single series above the
    budget becomes a part of its own.
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
    """A part under construction: the stacks it references in every source, and their cost in bytes."""

    def __init__(self, slot_bytes: Sequence[float]) -> None:
        self.numbers: list[set[int]] = [set() for _ in slot_bytes]
        self.is_empty = True
        self._slot_bytes = slot_bytes
        self._reached: dict[int, npt.NDArray[np.bool_]] = {}
        self._bytes = 0.0

    def bytes_with(self, reach: SeriesReach) -> float:
        """Return the cost of the part including this series."""
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
        """Return an empty part that reuses this part's bitmaps."""
        self._reached.clear()
        return _Part(self._slot_bytes)

    def _bitmap(self, source: int) -> npt.NDArray[np.bool_]:
        if source not in self._reached:
            self._reached[source] = np.zeros(STACK_SLOTS, dtype=np.bool_)
        return self._reached[source]


def _symbols_bytes(source: DatasetSource) -> int:
    return source.section_bounds(SYMBOLS)[1] * SYMBOLS_EXPANSION


def _fixed_bytes(sources: Iterable[DatasetSource]) -> int:
    """Return the bytes that do not depend on the split: row buffers of all sources and of the output."""
    per_source = (
        min(source.section_bounds(PROFILES)[1] * ROWS_EXPANSION, DECODED_BATCH_BYTES)
        + (source.size if source.size <= WHOLE_DATASET_BYTES else 0)
        for source in sources
    )
    rows = sum(per_source)
    return rows + min(rows, 2 * ROW_GROUP_BYTES)
