"""One source of a dataset merge: its series, symbols and rows, one row group at a time.

The merge reads and advances ``head``, a C struct with the source's next row, without the GIL; ``refill`` reads the next
row group at the end of the current one. Row groups are read by the project's page decoder, and by pyarrow from the
first row group that the decoder does not support.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, qsort
from libc.string cimport memset

from engine.core._bad_object cimport BAD, REFERENCE, refuse
from engine.core._byte_buffers cimport Buffer, buffer_free, put_bytes, put_u32, put_zeros
from engine.formats.profile_block.table._profile_pages cimport ProfilePages
from engine.formats.profile_block.table._row_columns cimport RowBlock, fill_from_batch, int_at
from engine.formats.profile_block.series._series_arrays cimport SeriesItem
from engine.formats.profile_block.series._series_reader cimport SeriesTable, read_series_index
from engine.formats.profile_block.symbols._symbol_arrays cimport PartitionItem, find_partition, node_of
from engine.formats.profile_block.symbols._symbol_pruning cimport prune_symbols
from engine.formats.profile_block.symbols._symbol_reader cimport SymbolTable, read_symbols
from engine.formats.profile_block.symbols._symbol_translation cimport Translation, translation_free

from engine.core.errors import BadObject, MergeCancelled
from engine.formats.profile_block.merge_model import (
    PROFILES, SERIES_INDEX, STREAMED_PROFILES_BYTES, SYMBOLS,
)
from engine.formats.profile_block.table.profile_table import ProfileTableReader, SectionFile
from engine.formats.profile_block.table.table_footer import check_table_footer


class SampleLabels(Exception):
    """The samples of a row have labels, which the compiled merge does not support."""


cdef class MergeSource:
    """Source ``number`` of a merge. ``kept`` holds the SeriesIndex values to keep, None for all series."""

    def __cinit__(self):
        memset(&self.head, 0, sizeof(Head))

    def __init__(self, source, kept, cancelled):
        self.object_name = source.object_name
        self.table = SeriesTable()
        self.symbols = SymbolTable()
        self._source = source
        self._kept = kept
        self._cancelled = cancelled
        self._block = RowBlock()

    def __dealloc__(self):
        cdef size_t index
        if self.head.translations != NULL:
            for index in range(self.head.partition_count):
                translation_free(&self.head.translations[index])
            free(self.head.translations)
        buffer_free(&self._numbers)
        buffer_free(&self._missing)

    cdef int load(self) except -1:
        """Read series index and symbols; with a selection, keep only the symbols that its rows reference."""
        self._stop_if_cancelled()
        if self._kept is not None and not self._kept:
            return 0
        self.table = read_series_index(self._section(SERIES_INDEX))
        self._take_series()
        self._stop_if_cancelled()
        self.symbols = read_symbols(self._section(SYMBOLS))
        if self._kept is not None:
            self._prune()
        self.head.translations = <Translation*>calloc(self.symbols.count + 1, sizeof(Translation))
        if self.head.translations == NULL:
            raise MemoryError()
        self.head.partitions = self.symbols.partitions
        self.head.partition_count = self.symbols.count
        return 0

    cdef bytes _section(self, int section):
        return self._source.read_section(section)

    cdef int _take_series(self) except -1:
        """Sort the series by number, which rows refer to. Raises BadReference if two have the same number."""
        cdef SeriesItem* items = self.table.items()
        cdef SeriesNumber entry
        cdef size_t index, count = self.table.count()
        cdef bint in_order = True
        for index in range(count):
            entry.number, entry.index, entry.rank = items[index].position, <uint32_t>index, 0
            entry.kept = self._kept is None or items[index].position in self._kept
            in_order = in_order and (index == 0 or items[index - 1].position < items[index].position)
            put_bytes(&self._numbers, &entry, sizeof(SeriesNumber))
        if not in_order:
            qsort(self._numbers.data, count, sizeof(SeriesNumber), _compare_numbers)
        for index in range(1, count):
            if self.numbers()[index].number == self.numbers()[index - 1].number:
                refuse(REFERENCE, b"series_index", -1, b"two series have the same number")
        if self._kept is not None:
            known = {items[index].position for index in range(count)}
            for number in sorted(set(self._kept) - known):
                put_u32(&self._missing, number)
        self.head.is_selective = self._kept is not None
        self.head.numbers, self.head.number_count = self.numbers(), count
        self.head.missing, self.head.missing_count = <uint32_t*>self._missing.data, self._missing.size // 4
        return 0

    cdef int _prune(self) except -1:
        """Read the stack ids of the selected rows and drop the symbols that they do not reference."""
        cdef Buffer* reached = <Buffer*>calloc(self.symbols.count + 1, sizeof(Buffer))
        cdef size_t index
        if reached == NULL:
            raise MemoryError()
        try:
            for index in range(self.symbols.count):
                put_zeros(&reached[index], <size_t>self.symbols.partitions[index].node_count + 1)
            self._open_profiles()
            while self._next_block():
                self._mark_reached(reached)
            prune_symbols(self.symbols, reached)
        finally:
            for index in range(self.symbols.count):
                buffer_free(&reached[index])
            free(reached)
        self._block = RowBlock()
        self._pages = None
        self._batches = None
        return 0

    cdef int _mark_reached(self, Buffer* reached) except -1:
        cdef PartitionItem* partition
        cdef size_t row, sample
        cdef int64_t node
        self.head.rows = &self._block.rows
        for row in range(self._block.rows.row_count):
            if _wanted(&self.head, row) == NULL:
                continue
            partition = find_partition(
                self.symbols.partitions, self.symbols.count, <uint64_t>int_at(&self._block.rows.partitions, row)
            )
            if partition == NULL:
                refuse(REFERENCE, b"profiles", -1, b"a row of a partition without symbols")
            for sample in range(int_at(&self._block.rows.sample_starts, row),
                                int_at(&self._block.rows.sample_starts, row + 1)):
                node = node_of(partition, <uint64_t>int_at(&self._block.rows.stacks, sample))
                if node < 0:
                    refuse(REFERENCE, b"profiles", -1, b"a row has a stack that is not in its partition's stack trees")
                reached[partition - self.symbols.partitions].data[node] = 1
        return 0

    cdef object _open_profiles(self):
        """Open a reader at the start of the table."""
        cdef int64_t start, size
        offset, length = self._source.section_bounds(PROFILES)
        start, size = offset, length
        self._batches = None
        self._next_group = self._rows_delivered = 0
        if size <= STREAMED_PROFILES_BYTES:
            self._pages = ProfilePages(self._section(PROFILES), size)
        else:
            self._pages = ProfilePages(lambda at, count: self._source.read(start + at, count), size)
        return None

    cdef int start(self) except -1:
        """Advance to the first row."""
        if self._kept is not None and not self._kept:
            return 0
        self._open_profiles()
        self.head.series = NULL
        self.head.rows = &self._block.rows
        self.head.rows.row_count = 0
        self.head.row = 0
        self.head.live = True
        return self.refill()

    cdef int refill(self) except -1:
        """Advance to the next selected row, reading row groups as needed; at the end the head is not live."""
        while not settle(&self.head):
            if not self._next_block():
                self.head.live = False
                self._block = RowBlock()
                self._pages = None
                self._batches = None
                return 0
            self.head.rows = &self._block.rows
            self.head.row = 0
        return 0

    cdef object block_owner(self):
        """Return the object that owns the strings of the current rows, None if they have none."""
        return self._block.owner if self._block.rows.annotation_keys.size else None

    cdef bint _next_block(self) except -1:
        """Read the next row group into the block; return false at the end of the table."""
        self._stop_if_cancelled()
        if self._batches is None and self._pages.understood:
            if self._next_group == self._pages.group_count():
                return False
            if self._pages.read_group(self._next_group, self._block):
                self._next_group += 1
                self._rows_delivered += self._block.rows.row_count
                return True
        return self._next_batch()

    cdef bint _next_batch(self) except -1:
        """Read the next batch with pyarrow, skipping the rows that the page decoder has returned."""
        cdef size_t skipped
        if self._batches is None:
            offset, size = self._source.section_bounds(PROFILES)
            source = self._pages.section()
            check_table_footer(lambda at, count: self._source.read(offset + at, count), size)
            if source is None:
                source = SectionFile(self._source.read, offset, size)
            self._batches = ProfileTableReader(source).batches()
        for batch in self._batches:
            self._stop_if_cancelled()
            skipped = min(self._rows_delivered, <size_t>batch.num_rows)
            self._rows_delivered -= skipped
            if skipped < <size_t>batch.num_rows:
                if not fill_from_batch(self._block, batch.slice(skipped)):
                    raise SampleLabels()
                return True
        return False

    cdef int _stop_if_cancelled(self) except -1:
        if self._cancelled():
            raise MergeCancelled("the merge was cancelled")
        return 0


cdef int _compare_numbers(const void* left, const void* right) noexcept nogil:
    cdef uint32_t one = (<const SeriesNumber*>left).number, other = (<const SeriesNumber*>right).number
    return <int>(one > other) - <int>(one < other)


cdef const SeriesNumber* _find(Head* head, uint32_t number) noexcept nogil:
    """Return the series with a number, NULL if there is none. Repeated lookups of one number cost O(1)."""
    cdef size_t low = 0, high = head.number_count, middle
    if head.last_number < high and head.numbers[head.last_number].number == number:
        return &head.numbers[head.last_number]
    while low < high:
        middle = (low + high) // 2
        if head.numbers[middle].number < number:
            low = middle + 1
        else:
            high = middle
    if low == head.number_count or head.numbers[low].number != number:
        return NULL
    head.last_number = low
    return &head.numbers[low]


cdef int _refuse_unless_unselected(const Head* head, uint32_t number) except -1 nogil:
    """Raise BadReference for a series number that is not in the index, unless a selection excludes it."""
    cdef size_t index
    cdef bint selected = not head.is_selective
    for index in range(head.missing_count):
        selected = selected or head.missing[index] == number
    if selected:
        refuse(REFERENCE, b"profiles", -1, b"a row of a series that the series index does not have")
    return 0


cdef const SeriesNumber* _wanted(Head* head, size_t row) except? NULL nogil:
    """Return the series of a row, NULL if it is not selected."""
    cdef uint32_t number = <uint32_t>int_at(&head.rows.series, row)
    cdef const SeriesNumber* series = _find(head, number)
    if series == NULL:
        _refuse_unless_unselected(head, number)
        return NULL
    return series if series.kept else NULL


cdef int settle(Head* head) except -1 nogil:
    """Set the head to the first selected row at or after its position; return 0 if the block has none left.

    Rows of a source must be in merge order: by rank of series, then time.
    """
    cdef const SeriesNumber* previous = head.series
    cdef const SeriesNumber* series
    cdef int64_t time_ns
    while head.row < head.rows.row_count:
        series = _wanted(head, head.row)
        if series != NULL:
            time_ns = int_at(&head.rows.times, head.row)
            if previous != NULL and (
                series.rank < previous.rank or (series.rank == previous.rank and time_ns < head.time_ns)
            ):
                refuse(BAD, b"profiles", -1, b"rows are not ordered by labels and time")
            head.series = series
            head.time_ns = time_ns
            return 1
        head.row += 1
    return 0
