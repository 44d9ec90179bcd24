"""Compiled implementation of ``engine.lanes.tsdb.merge.series_hashes``."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from engine.core._byte_buffers cimport Buffer, Cursor, buffer_free, cursor_over, put_bytes, put_u8, read_uvarint, take

import numpy as np

from engine.core.errors import BadReference, LimitExceeded
from engine.formats.prometheus.index.index_layout import SECTION

cdef extern from "csrc/xxhash64.h":
    uint64_t lithify_xxh64_bytes(const uint8_t* data, size_t size) noexcept nogil

cdef enum:
    DONE = 0
    NO_SYMBOL = 1
    TOO_LONG = 2
    LABEL_BYTES_MAX = 16 << 20
    SEPARATOR = 0xFF


cdef int _hash(const uint32_t* refs, size_t count, const uint8_t* data, size_t start, size_t end,
               const uint32_t* positions, size_t symbols, Buffer* scratch, uint64_t* hashed) except -1 nogil:
    cdef Cursor cursor
    cdef size_t place
    cdef uint64_t size
    cdef const uint8_t* text
    scratch.size = 0
    for place in range(count):
        if refs[place] >= symbols:
            return NO_SYMBOL
        cursor = cursor_over(data, end)
        cursor.at = min(start + positions[refs[place]], end)
        size = read_uvarint(&cursor)
        text = take(&cursor, size)
        if cursor.failed:
            return NO_SYMBOL
        put_bytes(scratch, text, size)
        put_u8(scratch, SEPARATOR)
        if scratch.size > LABEL_BYTES_MAX:
            return TOO_LONG
    hashed[0] = lithify_xxh64_bytes(scratch.data, scratch.size)
    return DONE


def hash_series(batch, symbols):
    """Return the XXH64 of each series' label names and values, each followed by a byte 0xFF."""
    cdef const int64_t[::1] starts = batch.label_starts
    cdef const uint32_t[::1] refs = batch.label_refs
    cdef const uint8_t[::1] data
    cdef const uint32_t[::1] positions
    cdef size_t start, end, count = len(batch.ids), place = 0
    cdef Buffer scratch = Buffer(NULL, 0, 0)
    cdef int fault = DONE
    hashes = np.empty(count, np.uint64)
    cdef uint64_t[::1] found = hashes
    if <size_t>starts.shape[0] != count + 1 or starts[0] < 0 or 2 * starts[count] > refs.shape[0]:
        raise ValueError("the arrays of a batch of series differ in length")
    data, start, end, positions = symbols.parts()
    try:
        put_u8(&scratch, 0)  # Allocates the buffer even if nothing is hashed.
        with nogil:
            for place in range(count):
                if starts[place + 1] < starts[place]:
                    fault = NO_SYMBOL
                    break
                fault = _hash(&refs[0] + 2 * starts[place] if refs.shape[0] else NULL,
                              2 * <size_t>(starts[place + 1] - starts[place]), &data[0], start, end,
                              &positions[0] if positions.shape[0] else NULL, positions.shape[0], &scratch,
                              &found[place])
                if fault:
                    break
        if fault == TOO_LONG:
            raise LimitExceeded(SECTION, 16 * int(batch.ids[place]), "the labels of a series are too long")
        if fault:
            raise BadReference(SECTION, 16 * int(batch.ids[place]), "a label references an unknown symbol")
        return hashes
    finally:
        buffer_free(&scratch)
