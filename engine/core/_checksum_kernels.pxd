"""CRC-32C and CRC-32 for the other compiled modules, with the standard initial value and final inversion."""

from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t crc32c_of(const uint8_t* data, size_t size) noexcept nogil
cdef uint32_t crc32_of(const uint8_t* data, size_t size) noexcept nogil
