"""Integer encodings shared by Parquet and the symbol tables, on C arrays."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from engine.core._byte_buffers cimport Buffer, Cursor

cdef enum Decoded:
    DONE = 0
    DAMAGED = 1
    UNSUPPORTED = 2

cdef Decoded delta_decode(Cursor* cursor, unsigned int bits, int64_t* out, size_t capacity,
                          size_t* count) noexcept nogil
cdef int delta_encode(Buffer* out, const int64_t* values, size_t count, unsigned int bits) except -1 nogil
cdef Decoded levels_decode(const uint8_t* data, size_t size, unsigned int width, uint8_t* out,
                           size_t count) noexcept nogil
cdef Decoded indexes_decode(const uint8_t* data, size_t size, unsigned int width, uint32_t* out,
                            size_t count) noexcept nogil
