"""Bounds-checked read cursors and growable buffers for the compiled readers and writers (inline C, no module).

A cursor never reads outside of its bytes: such a read returns 0 and sets ``failed``, which stays set. A reader may
therefore do several reads and test ``failed`` once, before it uses the values.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset


ctypedef struct Cursor:
    const uint8_t* data
    size_t size
    size_t at
    bint failed


ctypedef struct Buffer:
    uint8_t* data
    size_t size
    size_t capacity


cdef inline Cursor cursor_over(const uint8_t* data, size_t size) noexcept nogil:
    cdef Cursor cursor
    cursor.data = data
    cursor.size = size
    cursor.at = 0
    cursor.failed = False
    return cursor


cdef inline size_t left(const Cursor* cursor) noexcept nogil:
    return cursor.size - cursor.at


cdef inline const uint8_t* take(Cursor* cursor, uint64_t size) noexcept nogil:
    """Skip ``size`` bytes and return their address; set ``failed`` and return NULL if there are fewer."""
    cdef const uint8_t* start
    if cursor.failed or size > cursor.size - cursor.at:
        cursor.failed = True
        return NULL
    start = cursor.data + cursor.at
    cursor.at += <size_t>size
    return start


cdef inline uint8_t read_u8(Cursor* cursor) noexcept nogil:
    cdef const uint8_t* at = take(cursor, 1)
    return 0 if at == NULL else at[0]


cdef inline uint32_t be32(const uint8_t* at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline uint16_t read_u16_be(Cursor* cursor) noexcept nogil:
    cdef const uint8_t* at = take(cursor, 2)
    return 0 if at == NULL else <uint16_t>((at[0] << 8) | at[1])


cdef inline uint32_t read_u32_be(Cursor* cursor) noexcept nogil:
    cdef const uint8_t* at = take(cursor, 4)
    return 0 if at == NULL else be32(at)


cdef inline uint64_t read_u64_be(Cursor* cursor) noexcept nogil:
    cdef const uint8_t* at = take(cursor, 8)
    return 0 if at == NULL else (<uint64_t>be32(at) << 32) | be32(at + 4)


cdef inline uint32_t read_u32_le(Cursor* cursor) noexcept nogil:
    cdef const uint8_t* at = take(cursor, 4)
    return 0 if at == NULL else (<uint32_t>at[3] << 24) | (<uint32_t>at[2] << 16) | (<uint32_t>at[1] << 8) | at[0]


cdef inline uint64_t read_uvarint(Cursor* cursor) noexcept nogil:
    """Read an unsigned LEB128 number; set ``failed`` if it does not fit in ten bytes and 64 bits."""
    cdef uint64_t value = 0
    cdef unsigned int shift = 0
    cdef uint8_t byte
    while not cursor.failed:
        if cursor.at >= cursor.size or shift > 63:
            break
        byte = cursor.data[cursor.at]
        cursor.at += 1
        if shift == 63 and byte > 1:
            break
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    cursor.failed = True
    return 0


cdef inline int64_t zigzag_decode(uint64_t value) noexcept nogil:
    return <int64_t>((value >> 1) ^ (~(value & 1) + 1))


cdef inline uint64_t zigzag_encode(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int64_t read_svarint(Cursor* cursor) noexcept nogil:
    return zigzag_decode(read_uvarint(cursor))


cdef inline void buffer_free(Buffer* buffer) noexcept nogil:
    free(buffer.data)
    buffer.data = NULL
    buffer.size = 0
    buffer.capacity = 0


cdef inline int buffer_reserve(Buffer* buffer, size_t extra) except -1 nogil:
    """Reserve capacity for ``extra`` more bytes; it at least doubles, so that appending is linear in total."""
    cdef size_t needed, capacity
    cdef uint8_t* grown
    if buffer.capacity - buffer.size >= extra:
        return 0
    needed = buffer.size + extra
    capacity = buffer.capacity * 2 if buffer.capacity * 2 > needed else needed
    if needed < extra:
        with gil:
            raise MemoryError()
    if capacity < 64:
        capacity = 64
    grown = <uint8_t*>realloc(buffer.data, capacity)
    if grown == NULL:
        with gil:
            raise MemoryError()
    buffer.data = grown
    buffer.capacity = capacity
    return 0


cdef inline int put_bytes(Buffer* buffer, const void* data, size_t size) except -1 nogil:
    buffer_reserve(buffer, size)
    if size:
        memcpy(buffer.data + buffer.size, data, size)
    buffer.size += size
    return 0


cdef inline int put_zeros(Buffer* buffer, size_t size) except -1 nogil:
    buffer_reserve(buffer, size)
    memset(buffer.data + buffer.size, 0, size)
    buffer.size += size
    return 0


cdef inline int put_u8(Buffer* buffer, uint8_t value) except -1 nogil:
    buffer_reserve(buffer, 1)
    buffer.data[buffer.size] = value
    buffer.size += 1
    return 0


cdef inline int put_u32(Buffer* buffer, uint32_t value) except -1 nogil:
    """Append a value in native byte order (for arrays in memory, not for files)."""
    return put_bytes(buffer, &value, 4)


cdef inline int put_u64(Buffer* buffer, uint64_t value) except -1 nogil:
    return put_bytes(buffer, &value, 8)


cdef inline void store_u32_be(uint8_t* at, uint32_t value) noexcept nogil:
    at[0] = <uint8_t>(value >> 24)
    at[1] = <uint8_t>(value >> 16)
    at[2] = <uint8_t>(value >> 8)
    at[3] = <uint8_t>value


cdef inline int put_u16_be(Buffer* buffer, uint32_t value) except -1 nogil:
    put_u8(buffer, <uint8_t>(value >> 8))
    return put_u8(buffer, <uint8_t>value)


cdef inline int put_u32_be(Buffer* buffer, uint32_t value) except -1 nogil:
    buffer_reserve(buffer, 4)
    store_u32_be(buffer.data + buffer.size, value)
    buffer.size += 4
    return 0


cdef inline int put_u64_be(Buffer* buffer, uint64_t value) except -1 nogil:
    put_u32_be(buffer, <uint32_t>(value >> 32))
    return put_u32_be(buffer, <uint32_t>value)


cdef inline int put_uvarint(Buffer* buffer, uint64_t value) except -1 nogil:
    buffer_reserve(buffer, 10)
    while value >= 0x80:
        buffer.data[buffer.size] = <uint8_t>(value | 0x80)
        buffer.size += 1
        value >>= 7
    buffer.data[buffer.size] = <uint8_t>value
    buffer.size += 1
    return 0


cdef inline int put_svarint(Buffer* buffer, int64_t value) except -1 nogil:
    return put_uvarint(buffer, zigzag_encode(value))
