"""Twin of reading and writing the series section: plain Python, the definition."""

from __future__ import annotations

from array import array
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from engine.core.checksums import crc32c
from engine.core.errors import BadObject, BadReference, LimitExceeded
from engine.formats.prometheus.errors import OutOfOrder
from engine.formats.prometheus.file_cursor import FileCursor
from engine.formats.prometheus.index.index_layout import BATCH_BYTES_MAX, SECTION, SERIES_ALIGNMENT, SERIES_BYTES_MAX
from engine.formats.prometheus.index.series_batch import SeriesBatch
from engine.formats.prometheus.model import INT64_MAX, UINT64_MASK
from engine.formats.prometheus.varints import svarint, uvarint

Ids = npt.NDArray[np.uint32]


def decode_series(
    data: memoryview, position: int, end: int, symbols: int, first_name: int, after: tuple[int, ...] | None, most: int
) -> SeriesBatch:
    """Read up to ``most`` entries from ``position``; checksum, references and every order are checked.

    ``symbols`` is how many there are, ``first_name`` the least that may be a label name, ``after`` the label references
    of the series before.
    """
    batch = _Arrays()
    cursor = FileCursor(data, SECTION, position, end)
    while cursor.left and len(batch.ids) < most and cursor.position - position < BATCH_BYTES_MAX:
        cursor.skip_zeros(SERIES_ALIGNMENT)
        at = cursor.position
        size = cursor.uvarint()
        if size > SERIES_BYTES_MAX:
            raise LimitExceeded(SECTION, at, f"a series of {size} bytes, at most {SERIES_BYTES_MAX} are read")
        entry = cursor.checked(size)
        labels = _labels(entry, symbols, first_name)
        if after is not None and labels <= after:
            raise OutOfOrder(SECTION, at, "the series does not follow the one before it")
        after = labels
        batch.ids.append(at // SERIES_ALIGNMENT)
        batch.label_refs.extend(labels)
        batch.label_starts.append(len(batch.label_refs) // 2)
        _read_chunks(entry, batch)
        batch.chunk_starts.append(len(batch.refs))
        entry.expect_end()
    return batch.finished(cursor.position)


class _Arrays:
    """The growing arrays of a batch."""

    def __init__(self) -> None:
        self.ids, self.label_refs, self.refs = array("I"), array("I"), array("Q")
        self.label_starts, self.chunk_starts = array("q", [0]), array("q", [0])
        self.min_times, self.max_times = array("q"), array("q")

    def finished(self, next_position: int) -> SeriesBatch:
        return SeriesBatch(
            next_position=next_position,
            ids=np.array(self.ids, np.uint32),
            label_starts=np.array(self.label_starts, np.int64),
            label_refs=np.array(self.label_refs, np.uint32),
            chunk_starts=np.array(self.chunk_starts, np.int64),
            min_times=np.array(self.min_times, np.int64),
            max_times=np.array(self.max_times, np.int64),
            chunk_refs=np.array(self.refs, np.uint64),
        )


def _labels(entry: FileCursor, symbols: int, first_name: int) -> tuple[int, ...]:
    refs: list[int] = []
    for position in range(2 * entry.count(entry.uvarint(), 2, "labels")):
        at = entry.position
        ref = entry.uvarint()
        is_name = position % 2 == 0
        if ref >= symbols or (is_name and ref < first_name):
            raise BadReference(SECTION, at, f"symbol {ref} of {symbols} as a label {'name' if is_name else 'value'}")
        if is_name and refs and ref <= refs[-2]:
            raise OutOfOrder(SECTION, at, "the labels of a series do not ascend")
        refs.append(ref)
    return tuple(refs)


def _read_chunks(entry: FileCursor, batch: _Arrays) -> None:
    max_time = ref = 0
    for position in range(entry.count(entry.uvarint(), 3, "chunks")):
        at = entry.position
        if position == 0:
            min_time = entry.svarint()
        else:
            gap = entry.uvarint()
            # A chunk that begins earlier has a gap that has wrapped.
            if not 0 < gap <= INT64_MAX:
                raise OutOfOrder(SECTION, at, f"chunk {position} does not begin after the one before it ends")
            min_time = max_time + gap
        max_time = min_time + entry.uvarint()
        ref = ref + entry.svarint() if position else entry.uvarint()
        if max_time > INT64_MAX:
            raise BadObject(SECTION, at, f"the times of chunk {position} are beyond 64 bits")
        if not 0 <= ref <= UINT64_MASK:
            raise BadReference(SECTION, at, f"the reference of chunk {position} is beyond 64 bits")
        batch.min_times.append(min_time)
        batch.max_times.append(max_time)
        batch.refs.append(ref)


def encode_series(batch: SeriesBatch, position: int, after: tuple[int, ...] | None) -> tuple[bytes, Ids]:
    """Return the entries of a batch, written from ``position`` of the file on with their padding, and their new ids.

    ``after`` are the label references of the series before. OutOfOrder if labels, series or chunks do not ascend.
    """
    out = bytearray()
    ids = array("I")
    for place in range(len(batch.ids)):
        refs = batch.label_refs_of(place)
        names = refs[::2]
        if any(name >= following for name, following in pairwise(names)):
            raise OutOfOrder(SECTION, position + len(out), "the labels of a series do not ascend")
        if after is not None and refs <= after:
            raise OutOfOrder(SECTION, position + len(out), "the series does not follow the one before it")
        after = refs
        out += bytes(-(position + len(out)) % SERIES_ALIGNMENT)
        body = uvarint(len(names)) + b"".join(map(uvarint, refs)) + _chunk_bytes(batch, place, position + len(out))
        if len(body) > SERIES_BYTES_MAX:
            raise LimitExceeded(SECTION, position + len(out), f"a series of {len(body)} bytes")
        ids.append((position + len(out)) // SERIES_ALIGNMENT)
        out += uvarint(len(body)) + body + crc32c(body).to_bytes(4, "big")
    return bytes(out), np.array(ids, np.uint32)


def _chunk_bytes(batch: SeriesBatch, place: int, at: int) -> bytes:
    first, last = int(batch.chunk_starts[place]), int(batch.chunk_starts[place + 1])
    parts = [uvarint(last - first)]
    columns = (batch.min_times, batch.max_times, batch.chunk_refs)
    before_time = before_ref = 0
    for position, (start, end, ref) in enumerate(zip(*(each[first:last].tolist() for each in columns), strict=True)):
        # A gap of more than 63 bits would be read as one that has wrapped.
        if end < start or (position and not 0 < start - before_time <= INT64_MAX):
            raise OutOfOrder(SECTION, at, f"chunk {position} from {start} to {end} after {before_time}")
        parts.append(uvarint(start - before_time) if position else svarint(start))
        parts.append(uvarint(end - start))
        parts.append(svarint(ref - before_ref) if position else uvarint(ref))
        before_time, before_ref = end, ref
    return b"".join(parts)
