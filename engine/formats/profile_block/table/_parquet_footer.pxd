"""Positions of the columns of a profile table; see ``_parquet_footer.pyx``."""

from libc.stdint cimport int64_t, uint8_t

from engine.core._byte_buffers cimport Buffer

cdef enum Leaf:
    ID = 0
    SERIES_INDEX = 1
    PARTITION = 2
    TOTAL_VALUE = 3
    STACKTRACE_ID = 4
    VALUE = 5
    LABEL_KEY = 6
    LABEL_STR = 7
    LABEL_NUM = 8
    LABEL_NUM_UNIT = 9
    SPAN_ID = 10
    TRACE_ID = 11
    DROP_FRAMES = 12
    KEEP_FRAMES = 13
    TIME_NANOS = 14
    DURATION_NANOS = 15
    PERIOD = 16
    COMMENT = 17
    DEFAULT_SAMPLE_TYPE = 18
    ANNOTATION_KEY = 19
    ANNOTATION_VALUE = 20
    LEAVES = 21

cdef enum Physical:
    AS_INT32 = 1
    AS_INT64 = 2
    AS_TEXT = 6
    AS_FIXED = 7

ctypedef struct LeafShape:
    const char* path
    Physical physical
    uint8_t max_def
    uint8_t max_rep
    bint may_miss

ctypedef struct ChunkItem:
    bint present
    int64_t start
    int64_t size
    int64_t value_count

ctypedef struct GroupItem:
    int64_t row_count
    ChunkItem chunks[21]        # by Leaf

cdef LeafShape* shape_of(int leaf) noexcept nogil
cdef int parse_footer(const uint8_t* data, size_t size, Buffer* groups) except -1 nogil
