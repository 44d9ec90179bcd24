"""C arrays of the rows of a profile table, for reading and writing; see ``_row_columns.pyx``."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from engine.core._byte_buffers cimport Buffer


cdef enum:
    FLAT_OPTIONALS = 5      # DropFrames, KeepFrames, DurationNanos, Period, DefaultSampleType


ctypedef struct RowColumns:
    size_t row_count
    size_t sample_count
    Buffer ids              # 16 bytes per row
    Buffer series           # int64_t per row, as all numbers here
    Buffer partitions
    Buffer totals
    Buffer times
    Buffer optionals[5]         # FLAT_OPTIONALS columns
    Buffer optionals_valid[5]   # a byte per row
    Buffer sample_starts    # row_count + 1 numbers
    Buffer stacks
    Buffer values
    Buffer spans
    Buffer span_valid
    Buffer traces           # 16 bytes per sample
    Buffer trace_valid
    Buffer comment_starts
    Buffer comments
    Buffer annotation_starts
    Buffer annotation_keys      # StringItem each
    Buffer annotation_values


cdef class RowBlock:
    cdef RowColumns rows
    cdef object owner       # owner of the bytes that the texts of annotations point into


cdef inline int64_t int_at(const Buffer* buffer, size_t index) noexcept nogil:
    return (<const int64_t*>buffer.data)[index]


cdef int rows_start(RowColumns* rows) except -1 nogil
cdef int rows_append(RowColumns* out, const RowColumns* source, size_t row, int64_t series, const int64_t* stacks) except -1 nogil
cdef int64_t wrong_total(const RowColumns* rows) noexcept nogil
cdef object to_batch(RowColumns* rows)
cdef bint fill_from_batch(RowBlock block, batch) except -1
