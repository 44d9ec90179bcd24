"""Footer, index and checksummed ranges of a symbols section; see ``_symbol_ranges.pyx``."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from engine.core._byte_buffers cimport Cursor


ctypedef struct Reading:
    const uint8_t* data
    size_t size
    size_t data_size               # bytes before the index
    size_t referenced              # bytes of them that tables refer to
    uint64_t decoded               # decoded size of the items announced so far
    uint64_t decoded_max
    int64_t columns[6 * 1024]      # six columns of one block

cdef void* new_items(size_t count, size_t size) except NULL nogil
cdef int open_index(Reading* reading, Cursor* headers) except -1 nogil
cdef int check_range(Reading* reading, uint64_t offset, uint64_t size, uint32_t crc, int64_t at) except -1 nogil
cdef int charge(Reading* reading, uint64_t count, uint64_t size, int64_t at) except -1 nogil
