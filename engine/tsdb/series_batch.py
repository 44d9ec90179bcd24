"""Some hundred entries of the series section as arrays: no Python object per series, label or chunk."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class SeriesBatch(NamedTuple):
    """Series in the order of the index; series ``i`` has labels ``label_starts[i]`` up to ``label_starts[i + 1]``.

    ``label_refs`` are pairs of symbol numbers, name and value; ``chunk_starts`` is into the three arrays after it.
    ``next_position`` is where in the file the next entry's padding begins.
    """

    next_position: int
    ids: npt.NDArray[np.uint32]
    label_starts: npt.NDArray[np.int64]
    label_refs: npt.NDArray[np.uint32]
    chunk_starts: npt.NDArray[np.int64]
    min_times: npt.NDArray[np.int64]
    max_times: npt.NDArray[np.int64]
    chunk_refs: npt.NDArray[np.uint64]

    def label_refs_of(self, position: int) -> tuple[int, ...]:
        """Return the symbol numbers of a series' labels: name, value, name, value …"""
        first, last = int(self.label_starts[position]), int(self.label_starts[position + 1])
        return tuple(self.label_refs[2 * first : 2 * last].tolist())
