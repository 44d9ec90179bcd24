"""Compiled CRC-32C (profile formats, Prometheus blocks) and CRC-32 (Parquet pages).

CRC-32C uses the SSE 4.2 instruction where the processor has it (detected at import), slicing-by-8 elsewhere.
"""

from libc.stdint cimport uint8_t, uint32_t

cdef extern from "csrc/checksums.h":
    ctypedef struct lithify_crc_table:
        pass
    ctypedef struct lithify_crc_shift:
        pass
    int LITHIFY_IS_DEBUG_BUILD
    uint32_t LITHIFY_POLYNOMIAL_CASTAGNOLI
    uint32_t LITHIFY_POLYNOMIAL_IEEE
    void lithify_crc_fill(lithify_crc_table* table, uint32_t polynomial) noexcept nogil
    uint32_t lithify_crc_sliced(const lithify_crc_table* table, uint32_t crc, const uint8_t* data,
                                size_t size) noexcept nogil
    void lithify_crc_fill_shift(lithify_crc_shift* shift, const lithify_crc_table* table) noexcept nogil
    uint32_t lithify_crc32c_sse42(const lithify_crc_shift* shift, uint32_t crc, const uint8_t* data,
                                  size_t size) noexcept nogil
    int lithify_cpu_has_sse42() noexcept nogil

IS_DEBUG_BUILD = bool(LITHIFY_IS_DEBUG_BUILD)

cdef lithify_crc_table castagnoli
cdef lithify_crc_table ieee
lithify_crc_fill(&castagnoli, LITHIFY_POLYNOMIAL_CASTAGNOLI)
lithify_crc_fill(&ieee, LITHIFY_POLYNOMIAL_IEEE)
cdef lithify_crc_shift castagnoli_shift
lithify_crc_fill_shift(&castagnoli_shift, &castagnoli)
cdef bint has_instruction = lithify_cpu_has_sse42()


cdef uint32_t crc32c_of(const uint8_t* data, size_t size) noexcept nogil:
    if has_instruction:
        return ~lithify_crc32c_sse42(&castagnoli_shift, 0xFFFFFFFFu, data, size)
    return ~lithify_crc_sliced(&castagnoli, 0xFFFFFFFFu, data, size)


cdef uint32_t crc32_of(const uint8_t* data, size_t size) noexcept nogil:
    return ~lithify_crc_sliced(&ieee, 0xFFFFFFFFu, data, size)


def crc32c(const uint8_t[::1] data, uint32_t value=0):
    """Return the CRC-32C of ``data``, continuing from ``value``, the checksum of the bytes before it."""
    cdef const uint8_t* start = &data[0] if data.shape[0] else NULL
    if has_instruction:
        return ~lithify_crc32c_sse42(&castagnoli_shift, ~value, start, data.shape[0]) & 0xFFFFFFFF
    return crc32c_sliced(data, value)


def crc32c_sliced(const uint8_t[::1] data, uint32_t value=0):
    """Return the same as ``crc32c``, computed without the SSE 4.2 instruction."""
    cdef const uint8_t* start = &data[0] if data.shape[0] else NULL
    return ~lithify_crc_sliced(&castagnoli, ~value, start, data.shape[0]) & 0xFFFFFFFF


def crc32(const uint8_t[::1] data):
    """Return the CRC-32 of ``data``, as zlib computes it."""
    return crc32_of(&data[0] if data.shape[0] else NULL, data.shape[0])
