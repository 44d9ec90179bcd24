"""The compiled scan and search of symbols; see ``engine.formats.prometheus.index.symbol_positions``."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from engine.core._byte_buffers cimport Cursor, cursor_over, left, read_u32_be, read_uvarint, take

import numpy as np

from engine.core.errors import BadObject, LimitExceeded, Truncated
from engine.formats.prometheus.errors import OutOfOrder
from engine.formats.prometheus.index.index_layout import SECTION

cdef enum:
    VARINT_BYTES_MAX = 10
    NONE = 0
    TRUNCATED = 1
    BAD_VARINT = 2
    ORDER = 3

ctypedef struct Text:
    const uint8_t* data
    size_t size


cdef inline bint _is_before(const Text* one, const Text* other) noexcept nogil:
    cdef size_t shared = min(one.size, other.size)
    cdef int order = memcmp(one.data, other.data, shared) if shared else 0
    return order < 0 or (order == 0 and one.size < other.size)


cdef inline int _read_text(Cursor* cursor, Text* text) noexcept nogil:
    """Read a string; return the fault if it is invalid."""
    cdef size_t start = cursor.at
    text.size = read_uvarint(cursor)
    if cursor.failed:
        return BAD_VARINT if cursor.size - start >= VARINT_BYTES_MAX else TRUNCATED
    text.data = take(cursor, text.size)
    return TRUNCATED if cursor.failed else NONE


cdef int _scan(Cursor* cursor, size_t start, uint32_t* positions, size_t count, size_t* at) noexcept nogil:
    """Scan the symbols; return the fault and its position if one is invalid."""
    cdef Text text, before
    cdef size_t number
    cdef int fault
    before.data, before.size = NULL, 0
    for number in range(count):
        at[0] = cursor.at
        fault = _read_text(cursor, &text)
        if fault:
            return fault
        if number and not _is_before(&before, &text):
            return ORDER
        positions[number] = <uint32_t>(at[0] - start)
        before = text
    return NONE


def scan_symbols(const uint8_t[::1] data, size_t start, size_t end):
    """Return the position of each symbol's length relative to ``start``, which holds their number; they must ascend."""
    cdef Cursor cursor
    cdef size_t count, at = start
    cdef int fault = NONE
    cdef uint32_t[::1] places
    if not start <= end <= <size_t>data.shape[0]:
        raise Truncated(SECTION, start, f"bytes {start} to {end} are outside of {data.shape[0]} bytes")
    cursor = cursor_over(&data[0] if data.shape[0] else NULL, end)
    cursor.at = start
    count = read_u32_be(&cursor)
    if cursor.failed:
        raise Truncated(SECTION, start, "the symbol table ends inside its count")
    if count > left(&cursor):
        raise LimitExceeded(SECTION, cursor.at, f"{count} symbols do not fit in {left(&cursor)} bytes")
    positions = np.empty(count, np.uint32)
    places = positions
    if count:
        with nogil:
            fault = _scan(&cursor, start, &places[0], count, &at)
    if fault == ORDER:
        raise OutOfOrder(SECTION, at, "a symbol does not sort after the previous one")
    if fault == BAD_VARINT:
        raise BadObject(SECTION, at, "a varint is longer than 64 bits")
    if fault == TRUNCATED:
        raise Truncated(SECTION, at, "the symbol table ends inside a symbol")
    if left(&cursor):
        raise BadObject(SECTION, cursor.at, f"{left(&cursor)} unexpected bytes after the last symbol")
    return positions


def find_symbol(const uint8_t[::1] data, size_t start, size_t end, const uint32_t[::1] positions, bytes symbol):
    """Return the number of the first symbol not less than ``symbol``; ``positions`` are those of ``scan_symbols``."""
    cdef Text target, found
    cdef Cursor cursor
    cdef Py_ssize_t low = 0, high = positions.shape[0], middle
    if not start <= end <= <size_t>data.shape[0]:
        raise Truncated(SECTION, start, f"bytes {start} to {end} are outside of {data.shape[0]} bytes")
    target.data, target.size = <const uint8_t*><const char*>symbol, len(symbol)
    while low < high:
        middle = (low + high) // 2
        cursor = cursor_over(&data[0], end)
        cursor.at = min(start + positions[middle], end)
        if _read_text(&cursor, &found):
            raise Truncated(SECTION, start + positions[middle], "the symbol table ends inside a symbol")
        if _is_before(&found, &target):
            low = middle + 1
        else:
            high = middle
    return low
