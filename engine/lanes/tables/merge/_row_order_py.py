"""Pure Python reference implementation of the keys of rows and the merge of runs."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.lanes.tables.merge.key_arrays import KeyPart, Keys, heads_of

Segments = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]


def join_parts(rows: int, parts: Sequence[KeyPart]) -> Keys:
    """Return the keys of ``rows`` rows, the joined parts of each column. Raises ValueError for invalid offsets."""
    for part in parts:
        if not _are_offsets(part.offsets, rows, len(part.data)):
            raise ValueError("the offsets of a part do not match its rows and bytes")
        if part.valid is not None and len(part.valid) != rows:
            raise ValueError("a part of the keys has a different number of rows")
    keys = []
    for row in range(rows):
        key = bytearray()
        for part in parts:
            if part.valid is not None:
                key.append(int(part.valid[row]))
                if not part.valid[row]:
                    continue
            value = part.data[part.offsets[row] : part.offsets[row + 1]].tobytes()
            key += value.replace(b"\0", b"\0\xff") + b"\0\0" if part.escaped else value
        keys.append(bytes(key))
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum([len(key) for key in keys], out=offsets[1:])
    data = np.frombuffer(b"".join(keys), np.uint8)
    return Keys(heads_of(data, offsets), data, offsets)


def first_unsorted(keys: Keys) -> int:
    """Return the first row whose key is less than that of the previous row, -1 if there is none."""
    for row in range(1, len(keys)):
        if keys.key(row) < keys.key(row - 1):
            return row
    return -1


def merge_runs(
    runs: Sequence[Keys], positions: npt.NDArray[np.int64], goes_on: npt.NDArray[np.uint8], limit: int
) -> Segments:
    """Merge sorted runs from ``positions`` on and advance these; rows with equal keys come in the order of runs.

    Returns (run, first row, rows) of the segments of the result. Ends after ``limit`` rows, when a run that continues
    (``goes_on``) is exhausted, or when all are. Raises ValueError for invalid positions.
    """
    if any(position < 0 for position in positions):
        raise ValueError("a negative position")
    heap = [
        (run.key(int(positions[number])), number) for number, run in enumerate(runs) if positions[number] < len(run)
    ]
    heapq.heapify(heap)
    segments: list[list[int]] = []
    while heap and limit:
        _, number = heap[0]
        row = int(positions[number])
        if segments and segments[-1][0] == number:
            segments[-1][2] += 1
        else:
            segments.append([number, row, 1])
        positions[number] += 1
        limit -= 1
        if row + 1 < len(runs[number]):
            heapq.heapreplace(heap, (runs[number].key(row + 1), number))
        elif goes_on[number]:
            break
        else:
            heapq.heappop(heap)
    found = np.array(segments, np.int64).reshape(-1, 3)
    return found[:, 0].astype(np.int32), found[:, 1].copy(), found[:, 2].copy()


def _are_offsets(offsets: npt.NDArray[np.int64], rows: int, size: int) -> bool:
    """Return whether offsets bound ``rows`` values in ``size`` bytes and do not descend."""
    if len(offsets) != rows + 1:
        return False
    bounds = [0, *offsets.tolist(), size]
    return all(before <= after for before, after in itertools.pairwise(bounds))
