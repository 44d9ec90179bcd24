"""Growable columns of 64-bit integers for parsed profiles (inline C, no module)."""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

cdef enum:
    FIRST_ROOM = 64  # initial capacity in items


ctypedef struct Column:
    uint64_t* items
    size_t count
    size_t room


cdef inline int reserve(Column* column, size_t more) except -1 nogil:
    """Reserve capacity for ``more`` items."""
    cdef size_t room
    cdef uint64_t* items
    if column.room - column.count >= more:
        return 0
    room = max(<size_t>FIRST_ROOM, 2 * column.room, column.count + more)
    items = <uint64_t*>realloc(column.items, room * sizeof(uint64_t))
    if items == NULL:
        with gil:
            raise MemoryError()
    column.items = items
    column.room = room
    return 0


cdef inline int push(Column* column, uint64_t value) except -1 nogil:
    if column.count == column.room:
        reserve(column, 1)
    column.items[column.count] = value
    column.count += 1
    return 0


cdef inline int fill_zeros(Column* column, size_t count) except -1 nogil:
    """Fill the column with ``count`` zeros."""
    column.count = 0
    reserve(column, max(count, <size_t>1))
    memset(column.items, 0, count * sizeof(uint64_t))
    column.count = count
    return 0


cdef inline int fill_numbers(Column* column, size_t count) except -1 nogil:
    """Fill the column with the numbers 1 to ``count``."""
    cdef size_t index
    column.count = 0
    reserve(column, max(count, <size_t>1))
    for index in range(count):
        column.items[index] = index + 1
    column.count = count
    return 0


cdef inline void column_free(Column* column) noexcept nogil:
    free(column.items)
    column.items = NULL
    column.count = 0
    column.room = 0
