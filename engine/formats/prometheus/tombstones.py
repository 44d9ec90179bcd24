"""Codec of the tombstones file: the deleted time intervals of series."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from engine.core.binary import encode_svarint, encode_uvarint
from engine.core.checksums import crc32c
from engine.core.errors import BadObject, LimitExceeded, UnknownFormat
from engine.formats.prometheus.mapped_file import FileCursor

SECTION = "tombstones"
MAGIC = 0x0130BA30
VERSION = 1
HEADER_BYTES = 5
CRC_BYTES = 4
FILE_BYTES_MAX = 64 << 20
ENTRIES_MAX = 1 << 22
"""More entries would need hundreds of megabytes of memory; blocks have a few per delete request."""

Interval = tuple[int, int]
"""First and last deleted time, both inclusive."""


class Tombstones:
    """The deleted intervals of the series of a block, as arrays; ``len`` is the number of entries in the file."""

    def __init__(self, ids: Sequence[int] = (), starts: Sequence[int] = (), ends: Sequence[int] = ()) -> None:
        unsorted = np.asarray(ids, np.uint64)
        order = np.lexsort((np.asarray(starts, np.int64), unsorted))
        self._ids: npt.NDArray[np.uint64] = unsorted[order]
        self._starts: npt.NDArray[np.int64] = np.asarray(starts, np.int64)[order]
        self._ends: npt.NDArray[np.int64] = np.asarray(ends, np.int64)[order]

    def __len__(self) -> int:
        return len(self._ids)

    def series_ids(self) -> Iterator[int]:
        """Yield the ids of the series that have tombstones, ascending."""
        yield from (int(series_id) for series_id in np.unique(self._ids))

    def intervals(self, series_id: int) -> list[Interval]:
        """Return the deleted intervals of a series, ascending, with overlapping and adjacent ones joined."""
        first = np.searchsorted(self._ids, np.uint64(series_id), "left")
        last = np.searchsorted(self._ids, np.uint64(series_id), "right")
        joined: list[Interval] = []
        pairs = zip(self._starts[first:last].tolist(), self._ends[first:last].tolist(), strict=True)
        for start, end in pairs:
            if joined and start <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(joined[-1][1], end))
            else:
                joined.append((start, end))
        return joined


def decode_tombstones(data: memoryview | bytes) -> Tombstones:
    """Return decoded tombstones. Raises BadObject, and LimitExceeded beyond FILE_BYTES_MAX or ENTRIES_MAX."""
    if len(data) > FILE_BYTES_MAX:
        raise LimitExceeded(SECTION, -1, f"{len(data)} bytes exceed the maximum of {FILE_BYTES_MAX}")
    cursor = FileCursor(memoryview(data), SECTION)
    if (magic := cursor.u32()) != MAGIC:
        raise UnknownFormat(SECTION, 0, f"magic number {magic:08x}, expected {MAGIC:08x}")
    if (version := cursor.u8()) != VERSION:
        raise UnknownFormat(SECTION, 4, f"version {version} is not supported, expected {VERSION}")
    entries = cursor.checked(max(cursor.left - CRC_BYTES, 0))
    ids, starts, ends = array("Q"), array("q"), array("q")
    while entries.left:
        at = entries.position
        if len(ids) >= ENTRIES_MAX:
            raise LimitExceeded(SECTION, at, f"more than {ENTRIES_MAX} entries")
        series_id, start, end = entries.uvarint(), entries.svarint(), entries.svarint()
        if start > end:
            raise BadObject(SECTION, at, f"the interval from {start} to {end} ends before it starts")
        ids.append(series_id)
        starts.append(start)
        ends.append(end)
    return Tombstones(ids, starts, ends)


def encode_tombstones(entries: Iterable[tuple[int, int, int]]) -> bytes:
    """Return a tombstones file with entries (series id, first deleted time, last deleted time), nine bytes if empty."""
    body = b"".join(
        encode_uvarint(series_id) + encode_svarint(start) + encode_svarint(end) for series_id, start, end in entries
    )
    return MAGIC.to_bytes(4, "big") + bytes([VERSION]) + body + crc32c(body).to_bytes(CRC_BYTES, "big")
