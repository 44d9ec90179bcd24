"""Declarations of ``_merge_source.pyx``."""

from libc.stdint cimport int64_t, uint32_t

from engine.core._byte_buffers cimport Buffer
from engine.formats.profile_block.table._profile_pages cimport ProfilePages
from engine.formats.profile_block.table._row_columns cimport RowBlock, RowColumns
from engine.formats.profile_block.series._series_reader cimport SeriesTable
from engine.formats.profile_block.symbols._symbol_arrays cimport PartitionItem
from engine.formats.profile_block.symbols._symbol_reader cimport SymbolTable
from engine.formats.profile_block.symbols._symbol_translation cimport Translation


ctypedef struct SeriesNumber:
    uint32_t number         # SeriesIndex of rows
    uint32_t index          # in the series table
    uint32_t rank           # among the series of all sources
    bint kept


ctypedef struct Head:
    bint live                       # has a row; row, series and time are valid only then
    RowColumns* rows
    size_t row
    const SeriesNumber* series
    int64_t time_ns
    const SeriesNumber* numbers     # ascending by number
    size_t number_count
    size_t last_number              # where the last search ended
    bint is_selective
    const uint32_t* missing         # numbers that are selected and not in the series index
    size_t missing_count
    PartitionItem* partitions       # ascending by id
    size_t partition_count
    Translation* translations       # one per partition, memory NULL while unopened


cdef class MergeSource:
    cdef readonly str object_name
    cdef readonly SeriesTable table
    cdef Head head
    cdef SymbolTable symbols
    cdef object _source
    cdef object _kept
    cdef object _cancelled
    cdef RowBlock _block
    cdef ProfilePages _pages
    cdef object _batches                # pyarrow batches, if the page decoder cannot read the table
    cdef size_t _next_group
    cdef size_t _rows_delivered
    cdef Buffer _numbers                # SeriesNumber each
    cdef Buffer _missing                # uint32_t each

    cdef inline SeriesNumber* numbers(self) noexcept nogil:
        return <SeriesNumber*>self._numbers.data

    cdef inline size_t number_count(self) noexcept nogil:
        return self._numbers.size // sizeof(SeriesNumber)

    cdef int load(self) except -1
    cdef int start(self) except -1
    cdef int refill(self) except -1
    cdef object block_owner(self)
    cdef bytes _section(self, int section)
    cdef object _open_profiles(self)
    cdef int _take_series(self) except -1
    cdef int _prune(self) except -1
    cdef int _mark_reached(self, Buffer* reached) except -1
    cdef bint _next_block(self) except -1
    cdef bint _next_batch(self) except -1
    cdef int _stop_if_cancelled(self) except -1


cdef int settle(Head* head) except -1 nogil
