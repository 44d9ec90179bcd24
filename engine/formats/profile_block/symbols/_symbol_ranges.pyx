"""Verification of the footer, index and checksummed ranges of a symbols section.

The format is "Symbols" in ``docs/reference/formats/profile-block.md``.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc
from libc.string cimport memcmp

from engine.core._bad_object cimport BAD, CHECKSUM, FORMAT, LIMIT, TRUNCATED, refuse
from engine.core._byte_buffers cimport Cursor, be32, cursor_over, read_u32_be, read_u64_be, take
from engine.core._checksum_kernels cimport crc32c_of

cdef enum:
    FOOTER_BYTES = 24
    INDEX_HEADER_BYTES = 32
    VERSION = 3

cdef const char* SECTION = b"symbols"


cdef void* new_items(size_t count, size_t size) except NULL nogil:
    """Allocate an array of ``count`` items (at least one, so that NULL always means out of memory)."""
    cdef void* items = calloc(count if count else 1, size)
    if items == NULL:
        with gil:
            raise MemoryError()
    return items


cdef int open_index(Reading* reading, Cursor* headers) except -1 nogil:
    """Verify footer, index and table of contents; set ``headers`` to the partition headers."""
    cdef Cursor cursor
    cdef size_t footer
    cdef uint64_t start, size
    if reading.size < FOOTER_BYTES + INDEX_HEADER_BYTES + 4:
        refuse(TRUNCATED, SECTION, reading.size, b"the section is too short for a footer and an index")
    footer = reading.size - FOOTER_BYTES
    cursor = cursor_over(reading.data + footer, FOOTER_BYTES)
    _check_magic(&cursor, footer)
    start = read_u64_be(&cursor)
    if crc32c_of(reading.data + footer, 20) != be32(reading.data + footer + 20):
        refuse(CHECKSUM, SECTION, footer, b"the footer's checksum does not match")
    if start > footer or footer - start < INDEX_HEADER_BYTES + 4:
        refuse(TRUNCATED, SECTION, footer + 8, b"the index does not fit at the index offset")
    if crc32c_of(reading.data + start, footer - start - 4) != be32(reading.data + footer - 4):
        refuse(CHECKSUM, SECTION, start, b"the index checksum does not match")
    cursor = cursor_over(reading.data + start, footer - start - 4)
    _check_magic(&cursor, start)
    take(&cursor, 8)
    size = read_u64_be(&cursor)
    if read_u64_be(&cursor) != INDEX_HEADER_BYTES or size != footer - start - 4 - INDEX_HEADER_BYTES:
        refuse(BAD, SECTION, start + 16, b"the size of the index does not match its partition headers")
    reading.data_size = start
    headers[0] = cursor_over(reading.data + start + INDEX_HEADER_BYTES, size)
    return 0


cdef int _check_magic(Cursor* cursor, int64_t at) except -1 nogil:
    cdef const uint8_t* magic = take(cursor, 4)
    if magic == NULL or memcmp(magic, b"sym1", 4) != 0:
        refuse(FORMAT, SECTION, at, b"the magic is not sym1")
    if read_u32_be(cursor) != VERSION:
        refuse(FORMAT, SECTION, at + 4, b"the version is not 3")
    return 0


cdef int check_range(Reading* reading, uint64_t offset, uint64_t size, uint32_t crc, int64_t at) except -1 nogil:
    """Verify that a range is before the index, that all ranges fit there in total, and the checksum of the range."""
    if offset > reading.data_size or size > reading.data_size - offset:
        refuse(TRUNCATED, SECTION, at, b"a table is outside of the data before the index")
    if size > reading.data_size - reading.referenced:
        refuse(LIMIT, SECTION, at, b"the tables overlap")
    reading.referenced += size
    if crc32c_of(reading.data + offset, size) != crc:
        refuse(CHECKSUM, SECTION, offset, b"the checksum of a symbol table does not match")
    return 0


cdef int charge(Reading* reading, uint64_t count, uint64_t size, int64_t at) except -1 nogil:
    """Account for items to be decoded; raise LimitExceeded if the section decodes to more than its limit."""
    if count > (reading.decoded_max - reading.decoded) // size:
        refuse(LIMIT, SECTION, at, b"the symbols decode to far more than the size of the section")
    reading.decoded += count * size
    return 0
