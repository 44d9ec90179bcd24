"""Reference implementation of the codec of series entries in pure Python."""

from __future__ import annotations

from array import array
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from engine.core.binary import encode_svarint, encode_uvarint
from engine.core.checksums import crc32c
from engine.core.errors import BadObject, BadReference, LimitExceeded
from engine.formats.prometheus.errors import OutOfOrder
from engine.formats.prometheus.index.index_layout import BATCH_BYTES_MAX, SECTION, SERIES_ALIGNMENT, SERIES_BYTES_MAX
from engine.formats.prometheus.index.series_batch import SeriesBatch
from engine.formats.prometheus.mapped_file import FileCursor
from engine.formats.prometheus.model import INT64_MAX, UINT64_MASK

Ids = npt.NDArray[np.uint32]


def decode_series(
    data: memoryview, position: int, end: int, symbols: int, first_name: int, after: tuple[int, ...] | None, most: int
) -> SeriesBatch:
    """Return up to ``most`` entries from ``position``; checksums, references and all orders are verified.

    ``symbols`` is the number of symbols, ``first_name`` the smallest one that may be a label name, ``after`` the label
    references of the previous series.
    """
    batch = _Arrays()
    cursor = FileCursor(data, SECTION, position, end)
    while cursor.left and len(batch.ids) < most and cursor.position - position < BATCH_BYTES_MAX:
        cursor.skip_zeros(SERIES_ALIGNMENT)
        at = cursor.position
        size = cursor.uvarint()
        if size > SERIES_BYTES_MAX:
            raise LimitExceeded(SECTION, at, f"a series of {size} bytes exceeds the maximum of {SERIES_BYTES_MAX}")
        entry = cursor.checked(size)
        labels = _labels(entry, symbols, first_name)
        if after is not None and labels <= after:
            raise OutOfOrder(SECTION, at, "the series does not sort after the previous one")
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
            # For a chunk that starts earlier, the unsigned gap has wrapped around.
            if not 0 < gap <= INT64_MAX:
                raise OutOfOrder(SECTION, at, f"chunk {position} does not start after the end of the previous one")
            min_time = max_time + gap
        max_time = min_time + entry.uvarint()
        ref = ref + entry.svarint() if position else entry.uvarint()
        if max_time > INT64_MAX:
            raise BadObject(SECTION, at, f"the times of chunk {position} exceed 64 bits")
        if not 0 <= ref <= UINT64_MASK:
            raise BadReference(SECTION, at, f"the reference of chunk {position} exceeds 64 bits")
        batch.min_times.append(min_time)
        batch.max_times.append(max_time)
        batch.refs.append(ref)


def encode_series(batch: SeriesBatch, position: int, after: tuple[int, ...] | None) -> tuple[bytes, Ids]:
    """Return the padded entries of a batch for ``position`` of the file, and their new ids.

    ``after`` are the label references of the previous series. Raises OutOfOrder if labels, series or chunks do not
    ascend.
    """
    out = bytearray()
    ids = array("I")
    for place in range(len(batch.ids)):
        refs = batch.label_refs_of(place)
        names = refs[::2]
        if any(name >= following for name, following in pairwise(names)):
            raise OutOfOrder(SECTION, position + len(out), "the labels of a series do not ascend")
        if after is not None and refs <= after:
            raise OutOfOrder(SECTION, position + len(out), "the series does not sort after the previous one")
        after = refs
        out += bytes(-(position + len(out)) % SERIES_ALIGNMENT)
        body = (
            encode_uvarint(len(names))
            + b"".join(map(encode_uvarint, refs))
            + _chunk_bytes(batch, place, position + len(out))
        )
        if len(body) > SERIES_BYTES_MAX:
            raise LimitExceeded(SECTION, position + len(out), f"a series of {len(body)} bytes exceeds the maximum")
        ids.append((position + len(out)) // SERIES_ALIGNMENT)
        out += encode_uvarint(len(body)) + body + crc32c(body).to_bytes(4, "big")
    return bytes(out), np.array(ids, np.uint32)


def _chunk_bytes(batch: SeriesBatch, place: int, at: int) -> bytes:
    first, last = int(batch.chunk_starts[place]), int(batch.chunk_starts[place + 1])
    parts = [encode_uvarint(last - first)]
    columns = (batch.min_times, batch.max_times, batch.chunk_refs)
    before_time = before_ref = 0
    for position, (start, end, ref) in enumerate(zip(*(each[first:last].tolist() for each in columns), strict=True)):
        # Readers would treat a gap of more than 63 bits as wrapped around.
        if end < start or (position and not 0 < start - before_time <= INT64_MAX):
            raise OutOfOrder(SECTION, at, f"chunk {position} from {start} to {end} after {before_time}")
        parts.append(encode_uvarint(start - before_time) if position else encode_svarint(start))
        parts.append(encode_uvarint(end - start))
        parts.append(encode_svarint(ref - before_ref) if position else encode_uvarint(ref))
        before_time, before_ref = end, ref
    return b"".join(parts)
