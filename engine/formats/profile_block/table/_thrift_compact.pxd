"""Reader of the Thrift compact protocol over a bounds-checked cursor (inline C, no module).

Skipping unknown fields uses a bounded stack, so that nested input cannot overflow the call stack.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from engine.core._byte_buffers cimport Cursor, left, read_svarint, read_u8, read_uvarint, take

cdef enum:
    STOP = 0
    TRUE = 1
    FALSE = 2
    BYTE = 3
    INT16 = 4
    INT32 = 5
    INT64 = 6
    DOUBLE = 7
    BINARY = 8
    LIST = 9
    SET = 10
    MAP = 11
    STRUCT = 12
    DEPTH_MAX = 16


cdef inline int next_field(Cursor* cursor, int* number) noexcept nogil:
    """Read a field header; return its type (STOP at the end or on failure) and advance ``number``."""
    cdef uint8_t header = read_u8(cursor)
    if cursor.failed or header & 15 == STOP:
        return STOP
    if header >> 4:
        number[0] += header >> 4
    else:
        number[0] = <int>read_svarint(cursor)
    return header & 15


cdef inline uint64_t list_header(Cursor* cursor, int* kind) noexcept nogil:
    """Read the length and element type of a list; set ``failed`` if the elements do not fit in the bytes."""
    cdef uint8_t header = read_u8(cursor)
    cdef uint64_t count = header >> 4
    kind[0] = header & 15
    if count == 15:
        count = read_uvarint(cursor)
    if count > left(cursor):
        cursor.failed = True
    return 0 if cursor.failed else count


cdef inline void skip_plain(Cursor* cursor, int kind, bint in_list) noexcept nogil:
    """Skip a value that contains no other values."""
    if kind == TRUE or kind == FALSE:
        if in_list:
            take(cursor, 1)
    elif kind == BYTE:
        take(cursor, 1)
    elif kind == INT16 or kind == INT32 or kind == INT64:
        read_uvarint(cursor)
    elif kind == DOUBLE:
        take(cursor, 8)
    elif kind == BINARY:
        take(cursor, read_uvarint(cursor))
    else:
        cursor.failed = True


cdef inline void skip(Cursor* cursor, int kind) noexcept nogil:
    """Skip the value of a field; set ``failed`` for maps (which Parquet does not use) and deep nesting."""
    cdef uint64_t remaining[DEPTH_MAX]      # remaining elements of a list; the element kind of a struct is STOP
    cdef int kinds[DEPTH_MAX]
    cdef int depth = 0, number = 0
    cdef bint in_list = False
    while not cursor.failed:
        if kind == LIST or kind == SET or kind == STRUCT:
            if depth == DEPTH_MAX:
                cursor.failed = True
                return
            kinds[depth] = STOP
            remaining[depth] = 0
            if kind != STRUCT:
                remaining[depth] = list_header(cursor, &kinds[depth])
                if kinds[depth] == STOP:
                    cursor.failed = True
            depth += 1
        else:
            skip_plain(cursor, kind, in_list)
        while depth and not cursor.failed:
            in_list = kinds[depth - 1] != STOP
            if in_list and remaining[depth - 1]:
                remaining[depth - 1] -= 1
                kind = kinds[depth - 1]
                break
            if not in_list:
                kind = next_field(cursor, &number)
                if kind != STOP:
                    break
            depth -= 1
        if depth == 0:
            return


cdef inline int64_t read_int(Cursor* cursor, int kind) noexcept nogil:
    """Return an integer field; set ``failed`` for another type."""
    if kind != INT16 and kind != INT32 and kind != INT64:
        cursor.failed = True
        return 0
    return read_svarint(cursor)
