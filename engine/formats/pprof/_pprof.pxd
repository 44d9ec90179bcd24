"""Parser of pprof messages into C columns; see ``_pprof.pyx``."""

from libc.stdint cimport uint8_t, uint64_t

from engine.formats.pprof._columns cimport Column

# The columns of all tables; the comment after a group names the table they become.
cdef enum:
    LOCATION_STARTS, LOCATION_IDS, VALUE_STARTS, VALUES
    LABEL_STARTS, LABEL_KEYS, LABEL_STRINGS, LABEL_NUMBERS, LABEL_UNITS  # samples
    MAPPING_ID, MEMORY_START, MEMORY_LIMIT, FILE_OFFSET, MAPPING_FILENAME, BUILD_ID, MAPPING_FLAGS  # mappings
    LOCATION_ID, LOCATION_MAPPING, ADDRESS, FOLDED, LINE_STARTS, LINE_FUNCTION, LINE_NUMBER  # locations
    FUNCTION_ID, FUNCTION_NAME, SYSTEM_NAME, FUNCTION_FILENAME, START_LINE  # functions
    STRING_STARTS, STRING_ENDS, TYPES, UNITS, COMMENTS
    COLUMN_COUNT

# Single integers at the top of the message, by field number.
cdef struct Header:
    uint64_t integers[15]
    uint64_t period_type[3]


cdef int message(
    const uint8_t* data, size_t size, Column* columns, Header* header, size_t entries_max
) except -1 nogil


cdef class Tables:
    cdef Column columns[COLUMN_COUNT]
    cdef Header header

    cdef object unsigned_column(self, int name)
    cdef object signed_column(self, int name)
    cdef object byte_column(self, int name)
    cdef list strings(self, bytes data)
