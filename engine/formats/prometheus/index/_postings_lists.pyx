"""The compiled writer of postings lists; see ``engine.formats.prometheus.index.postings_lists``."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from engine.core._byte_buffers cimport (
    Buffer, Cursor, buffer_free, cursor_over, put_bytes, put_u8, put_u32_be, put_uvarint, put_zeros, read_uvarint,
    store_u32_be, take,
)
from engine.core._checksum_kernels cimport crc32c_of

import numpy as np

from engine.core.errors import BadReference
from engine.formats.prometheus.index.index_layout import SECTION

cdef enum:
    DONE = 0
    NO_PIECE = 1
    NO_SYMBOL = 2
    ALIGNMENT = 4
    ENTRY_KEYS = 2
    DIGITS = 8
    DIGIT_VALUES = 256

ctypedef struct Symbols:
    const uint8_t* data
    size_t start
    size_t end
    const uint32_t* positions
    size_t count


cdef int _put_text(Buffer* table, const Symbols* symbols, uint64_t number) except -1 nogil:
    cdef Cursor cursor
    cdef uint64_t size
    cdef const uint8_t* text
    if number >= symbols.count:
        return NO_SYMBOL
    cursor = cursor_over(symbols.data, symbols.end)
    cursor.at = min(symbols.start + symbols.positions[number], symbols.end)
    size = read_uvarint(&cursor)
    text = take(&cursor, size)
    if cursor.failed:
        return NO_SYMBOL
    put_uvarint(table, size)
    put_bytes(table, text, size)
    return DONE


cdef int _put_lists(Buffer* out, Buffer* table, size_t position, const uint64_t* pairs, const uint32_t* counts,
                    const int64_t* places, size_t pieces, const uint8_t* ids, size_t ids_size,
                    const Symbols* symbols, size_t most_bytes, size_t* lists, size_t* done) except -1 nogil:
    cdef size_t piece = 0, start, first
    cdef uint64_t size
    while piece < pieces and (lists[0] == 0 or table.size < most_bytes):
        put_zeros(out, (ALIGNMENT - (position + out.size) % ALIGNMENT) % ALIGNMENT)
        put_u8(table, ENTRY_KEYS)
        if _put_text(table, symbols, pairs[piece] >> 32) or _put_text(table, symbols, pairs[piece] & 0xFFFFFFFFu):
            return NO_SYMBOL
        put_uvarint(table, position + out.size)
        start = out.size
        put_zeros(out, 8)
        first = piece
        while piece < pieces and pairs[piece] == pairs[first]:
            size = 4 * <uint64_t>counts[piece]
            if places[piece] < 0 or <uint64_t>places[piece] > ids_size or size > ids_size - <uint64_t>places[piece]:
                return NO_PIECE
            put_bytes(out, ids + places[piece], size)
            piece += 1
        size = out.size - start - 4
        store_u32_be(out.data + start, <uint32_t>size)
        store_u32_be(out.data + start + 4, <uint32_t>(size // 4 - 1))
        put_u32_be(out, crc32c_of(out.data + start + 4, size))
        lists[0] += 1
        done[0] = piece
    return DONE


def format_lists(size_t position, const uint64_t[::1] pairs, const uint32_t[::1] counts, const int64_t[::1] places,
                 bytes ids, symbols, size_t most_bytes):
    """Return padded lists for ``position`` of the index, their table entries, and the numbers of lists and of pieces.

    Stops after the list whose entry brings the table to ``most_bytes``. Ids are given in pieces: ``counts`` ids of four
    bytes each at ``places`` in ``ids``. Consecutive pieces with equal pairs (name in the upper, value in the lower
    half) make one list.
    """
    cdef const uint8_t[::1] data
    cdef const uint32_t[::1] positions
    cdef Symbols known
    cdef Buffer out = Buffer(NULL, 0, 0)
    cdef Buffer table = Buffer(NULL, 0, 0)
    cdef size_t lists = 0, done = 0, pieces = pairs.shape[0]
    cdef const uint8_t* first = <const uint8_t*><const char*>ids
    cdef size_t ids_size = len(ids)
    cdef int fault
    if counts.shape[0] != pairs.shape[0] or places.shape[0] != pairs.shape[0]:
        raise ValueError("the arrays of pieces differ in length")
    if not pieces:
        return b"", b"", 0, 0
    data, known.start, known.end, positions = symbols.parts()
    known.data = &data[0] if data.shape[0] else NULL
    known.positions = &positions[0] if positions.shape[0] else NULL
    known.count = positions.shape[0]
    try:
        with nogil:
            fault = _put_lists(&out, &table, position, &pairs[0], &counts[0], &places[0], pieces, first, ids_size,
                               &known, most_bytes, &lists, &done)
        if fault == NO_SYMBOL:
            raise BadReference(SECTION, known.start, "a postings list refers to a symbol that does not exist")
        if fault == NO_PIECE:
            raise ValueError("a piece of a list is outside of the ids")
        return (<const char*>out.data)[:out.size], (<const char*>table.data)[:table.size], lists, done
    finally:
        buffer_free(&out)
        buffer_free(&table)


cdef void _sort_by_digit(const uint64_t* pairs, const uint32_t* ids, size_t count, unsigned int shift, size_t* starts,
                         uint64_t* to_pairs, uint32_t* to_ids) noexcept nogil:
    cdef size_t place, to
    for place in range(count):
        to = starts[(pairs[place] >> shift) & (DIGIT_VALUES - 1)]
        starts[(pairs[place] >> shift) & (DIGIT_VALUES - 1)] = to + 1
        to_pairs[to] = pairs[place]
        to_ids[to] = ids[place]


cdef bint _sort(uint64_t* pairs, uint32_t* ids, size_t count, uint64_t* other_pairs, uint32_t* other_ids) noexcept nogil:
    """Sort by pair with a stable radix sort; return whether the result is in the other arrays."""
    cdef size_t starts[DIGITS][DIGIT_VALUES]
    cdef size_t place, value, sum, here
    cdef unsigned int digit
    cdef bint is_other = False
    memset(starts, 0, sizeof(starts))
    for place in range(count):
        for digit in range(DIGITS):
            starts[digit][(pairs[place] >> 8 * digit) & (DIGIT_VALUES - 1)] += 1
    for digit in range(DIGITS):
        if starts[digit][((other_pairs if is_other else pairs)[0] >> 8 * digit) & (DIGIT_VALUES - 1)] == count:
            continue  # all digits are equal
        sum = 0
        for value in range(DIGIT_VALUES):
            here = starts[digit][value]
            starts[digit][value] = sum
            sum += here
        if is_other:
            _sort_by_digit(other_pairs, other_ids, count, 8 * digit, starts[digit], pairs, ids)
        else:
            _sort_by_digit(pairs, ids, count, 8 * digit, starts[digit], other_pairs, other_ids)
        is_other = not is_other
    return is_other


def grouped_ids(const uint64_t[::1] pairs, const uint32_t[::1] ids):
    """Return the distinct ascending pairs, their numbers of ids, and the ids in stable order, four bytes each."""
    cdef size_t count = pairs.shape[0], place, groups = 0
    cdef uint64_t* sorted_pairs
    cdef uint32_t* sorted_ids
    cdef uint32_t* counts
    cdef uint64_t* spare
    found_pairs, found_ids = np.empty(count, np.uint64), np.empty(count, np.uint32)
    if <size_t>ids.shape[0] != count:
        raise ValueError("expected as many ids as pairs")
    if not count:
        return found_pairs, found_ids, b""
    cdef uint64_t[::1] group_pairs = found_pairs
    cdef uint32_t[::1] group_ids = found_ids
    spare = <uint64_t*>malloc(12 * count)
    if spare == NULL:
        raise MemoryError()
    try:
        with nogil:
            sorted_pairs, sorted_ids = &group_pairs[0], &group_ids[0]
            memcpy(sorted_pairs, &pairs[0], 8 * count)
            memcpy(sorted_ids, &ids[0], 4 * count)
            if _sort(sorted_pairs, sorted_ids, count, spare, <uint32_t*>(spare + count)):
                memcpy(sorted_pairs, spare, 8 * count)
                memcpy(sorted_ids, spare + count, 4 * count)
            # The sorted pairs are in the returned arrays; the spare arrays now get the counts.
            counts = <uint32_t*>spare
            for place in range(count):
                if place == 0 or sorted_pairs[place] != sorted_pairs[groups - 1]:
                    sorted_pairs[groups], counts[groups] = sorted_pairs[place], 0
                    groups += 1
                counts[groups - 1] += 1
                store_u32_be(<uint8_t*>(sorted_ids + place), sorted_ids[place])
        return found_pairs[:groups], np.frombuffer((<const char*>counts)[:4 * groups], np.uint32), found_ids.tobytes()
    finally:
        free(spare)
