"""The XOR codec for the other compiled modules, without Python objects or the GIL."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    SAMPLE_BYTES_MAX = 20  # 4 + 64 bits of time, 13 + 64 bits of value
    CHUNK_BYTES_EXTRA = 24  # count, first time, first value, the zero byte at the end

ctypedef struct XorFault:
    int kind  # position in ERRORS of _xor.pyx; -1: none
    size_t offset  # in the chunk's data
    const char* reason

cdef int64_t xor_count(const uint8_t* data, size_t size, XorFault* fault) noexcept nogil
cdef int decode_samples(const uint8_t* data, size_t size, int64_t* times, uint64_t* values,
                        XorFault* fault) noexcept nogil
cdef size_t encode_samples(const int64_t* times, const uint64_t* values, size_t count, uint8_t* out) noexcept nogil
