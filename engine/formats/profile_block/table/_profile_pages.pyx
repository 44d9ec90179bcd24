"""Reader of the row groups of a profile table with Lithify's page decoder, where it supports them.

``understood`` is true if the footer is supported; ``read_group`` returns false for a row group with anything
unexpected. In both cases the caller uses pyarrow, so this module never decides whether a table is damaged. The memory
of a row group is bounded by its size, and row groups that decode to more than ``GROUP_BYTES_MAX`` are left to pyarrow,
which reads them in batches.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memset

from engine.core._byte_buffers cimport Buffer, buffer_free, put_bytes, put_zeros
from engine.formats.profile_block.table._page_reader cimport Column, column_free, read_chunk
from engine.formats.profile_block.table._parquet_footer cimport (
    ANNOTATION_KEY, ANNOTATION_VALUE, COMMENT, DEFAULT_SAMPLE_TYPE, DROP_FRAMES, DURATION_NANOS, ID, KEEP_FRAMES,
    LABEL_KEY, LABEL_NUM_UNIT, LEAVES, PARTITION, PERIOD, SERIES_INDEX, SPAN_ID, STACKTRACE_ID, TIME_NANOS,
    TOTAL_VALUE, TRACE_ID, VALUE, ChunkItem, GroupItem, parse_footer, shape_of,
)
from engine.formats.profile_block.table._row_columns cimport FLAT_OPTIONALS, RowBlock, RowColumns, rows_start, to_batch, wrong_total

from engine.core.errors import Truncated
from engine.formats.profile_block.merge_model import ROW_BYTES, ROW_GROUP_BYTES, SAMPLE_BYTES

cdef enum:
    TAIL_BYTES = 8
    VALUES_PER_BYTE_MAX = 128       # the densest encoding of known writers has about 50

cdef int64_t GROUP_BYTES_MAX = 2 * ROW_GROUP_BYTES
cdef int64_t ROW_SIZE = ROW_BYTES
cdef int64_t SAMPLE_SIZE = SAMPLE_BYTES
cdef int[5] OPTIONALS
OPTIONALS[:] = [DROP_FRAMES, KEEP_FRAMES, DURATION_NANOS, PERIOD, DEFAULT_SAMPLE_TYPE]


cdef class ProfilePages:
    """A profile table, given as bytes or as a function that reads ranges of it."""

    def __cinit__(self):
        memset(&self._columns, 0, sizeof(self._columns))

    def __init__(self, source, int64_t size):
        self._whole = source if isinstance(source, bytes) else None
        self._read = None if isinstance(source, bytes) else source
        self._size = size
        if self._whole is not None and len(self._whole) != size:
            raise Truncated("profiles", -1, f"a table of {len(self._whole)} bytes, but {size} are expected")
        self.understood = self._open()

    def __dealloc__(self):
        cdef int leaf
        buffer_free(&self._groups)
        for leaf in range(LEAVES):
            column_free(&self._columns[leaf])

    cdef size_t group_count(self) noexcept nogil:
        return self._groups.size // sizeof(GroupItem)

    cdef bytes section(self):
        """Return the whole section, None if it is streamed."""
        return self._whole

    cdef bytes _range(self, int64_t start, int64_t size):
        """Return exactly ``size`` bytes; the decoder relies on it. Raises Truncated."""
        cdef bytes found = self._whole[start : start + size] if self._whole is not None else self._read(start, size)
        if found is None or len(found) != size:
            got = 0 if found is None else len(found)
            raise Truncated("profiles", start, f"a read of {size} bytes of the table returned {got}")
        return found

    cdef bint _open(self) except -1:
        """Read the footer; return false if it is unsupported."""
        cdef bytes tail, footer
        cdef const uint8_t* at
        cdef int64_t size
        if self._size < TAIL_BYTES + 4:
            return False
        tail = self._range(self._size - TAIL_BYTES, TAIL_BYTES)
        at = <const uint8_t*><char*>tail
        if memcmp(at + 4, b"PAR1", 4) != 0:
            return False
        size = <int64_t>at[0] | (<int64_t>at[1] << 8) | (<int64_t>at[2] << 16) | (<int64_t>at[3] << 24)
        if size > self._size - TAIL_BYTES - 4:
            return False
        footer = self._range(self._size - TAIL_BYTES - size, size)
        if not parse_footer(<const uint8_t*><char*>footer, size, &self._groups):
            return False
        return self._places_fit()

    cdef bint _places_fit(self) noexcept:
        """Return whether all chunks are inside the section and do not exceed it in total."""
        cdef int64_t left = self._size
        cdef ChunkItem* chunk
        cdef size_t number
        cdef int leaf
        for number in range(self.group_count()):
            for leaf in range(LEAVES):
                chunk = &self.group(number).chunks[leaf]
                if chunk.present:
                    if chunk.size > left or chunk.start > self._size - chunk.size:
                        return False
                    left -= chunk.size
        return True

    cdef bint read_group(self, size_t number, RowBlock block) except -1:
        """Replace the rows of ``block`` by a row group; return false (and no rows) if pyarrow must read it."""
        cdef GroupItem* group = self.group(number)
        cdef int64_t start = self._size, end = 0, held = 0
        cdef const uint8_t* data
        cdef int leaf
        cdef bint done
        for leaf in range(LEAVES):
            if group.chunks[leaf].present:
                start = min(start, group.chunks[leaf].start)
                end = max(end, group.chunks[leaf].start + group.chunks[leaf].size)
                held += group.chunks[leaf].size
        if not _is_bounded(group) or (self._whole is None and end - start > 2 * held):
            return False
        if self._whole is not None:
            block.owner = self._whole
            data = <const uint8_t*><char*>self._whole
        else:
            block.owner = self._range(start, end - start)
            data = <const uint8_t*><char*>block.owner - start
        with nogil:
            done = _read_columns(data, group, self._columns) and _gather(group, self._columns, &block.rows)
        if not done:
            block.rows.row_count = 0
        elif number + 1 == self.group_count():
            self._release()
        if block.rows.annotation_keys.size == 0:
            block.owner = None
        return done

    cdef void _release(self):
        """Release the memory of decoding: a merge has many tables open at their last row group."""
        cdef int leaf
        self._whole = None
        for leaf in range(LEAVES):
            column_free(&self._columns[leaf])


cdef bint _is_bounded(const GroupItem* group) noexcept nogil:
    """Return whether the numbers of values are consistent with one another and with the sizes of the chunks."""
    cdef int64_t rows = group.row_count, samples = group.chunks[<int>STACKTRACE_ID].value_count
    cdef const ChunkItem* chunk
    cdef int leaf
    if rows > group.chunks[<int>ID].size // 16 or samples < rows:
        return False
    if samples > VALUES_PER_BYTE_MAX * group.chunks[<int>STACKTRACE_ID].size:
        return False
    if rows * ROW_SIZE + samples * SAMPLE_SIZE > GROUP_BYTES_MAX:
        return False
    for leaf in range(LEAVES):
        chunk = &group.chunks[leaf]
        if not chunk.present:
            continue
        if leaf == COMMENT or leaf == ANNOTATION_KEY or leaf == ANNOTATION_VALUE:
            if chunk.value_count < rows or chunk.value_count > rows + VALUES_PER_BYTE_MAX * chunk.size:
                return False
        elif chunk.value_count != (samples if STACKTRACE_ID <= leaf <= TRACE_ID else rows):
            return False
    return True


cdef int _read_columns(const uint8_t* data, const GroupItem* group, Column* columns) except -1 nogil:
    """Decode every column of the row group; return 0 if one is unsupported."""
    cdef int leaf
    for leaf in range(LEAVES):
        columns[leaf].level_count = columns[leaf].value_count = 0
        if group.chunks[leaf].present:
            if not read_chunk(data + group.chunks[leaf].start, &group.chunks[leaf], shape_of(leaf), &columns[leaf]):
                return 0
    return 1


cdef inline void _take(Buffer* out, Column* column) noexcept nogil:
    """Swap the values of a column with a buffer of the rows."""
    cdef Buffer old = out[0]
    out[0] = column.values
    column.values = old


cdef int _gather(const GroupItem* group, Column* columns, RowColumns* rows) except -1 nogil:
    """Build rows from decoded columns; return 0 if their nesting is unexpected or the TotalValue of a row is wrong."""
    cdef size_t row_count = group.row_count, element_count = 0
    cdef int index, leaf
    rows_start(rows)
    if not _read_starts(&columns[<int>STACKTRACE_ID], row_count, &rows.sample_starts, &element_count):
        return 0
    for leaf in range(VALUE, TRACE_ID + 1):
        if group.chunks[leaf].present and not _same_nesting(&columns[<int>STACKTRACE_ID], &columns[leaf]):
            return 0
    for leaf in range(LABEL_KEY, LABEL_NUM_UNIT + 1):
        if group.chunks[leaf].present and not _has_no_labels(&columns[leaf]):
            return 0
    rows.row_count = row_count
    rows.sample_count = element_count
    _take(&rows.ids, &columns[<int>ID])
    _take(&rows.series, &columns[<int>SERIES_INDEX])
    _unsigned_series(rows)
    _take(&rows.partitions, &columns[<int>PARTITION])
    _take(&rows.totals, &columns[<int>TOTAL_VALUE])
    _take(&rows.times, &columns[<int>TIME_NANOS])
    _take(&rows.stacks, &columns[<int>STACKTRACE_ID])
    _take(&rows.values, &columns[<int>VALUE])
    _spread(&columns[<int>SPAN_ID], 1, element_count, 8, &rows.spans, &rows.span_valid)
    _spread(&columns[<int>TRACE_ID], 1, element_count, 16, &rows.traces, &rows.trace_valid)
    for index in range(FLAT_OPTIONALS):
        _spread(&columns[OPTIONALS[index]], 0, row_count, 8, &rows.optionals[index], &rows.optionals_valid[index])
    return _gather_lists(group, columns, rows) and wrong_total(rows) < 0


cdef int _gather_lists(const GroupItem* group, Column* columns, RowColumns* rows) except -1 nogil:
    """Build the lists of comments and annotations, which are empty if the table has no such columns."""
    cdef Column* keys = &columns[<int>ANNOTATION_KEY]
    cdef Column* texts = &columns[<int>ANNOTATION_VALUE]
    cdef size_t count = 0
    if group.chunks[<int>COMMENT].present:
        if not _read_starts(&columns[<int>COMMENT], rows.row_count, &rows.comment_starts, &count):
            return 0
        _take(&rows.comments, &columns[<int>COMMENT])
    else:
        put_zeros(&rows.comment_starts, rows.row_count * sizeof(int64_t))
    if group.chunks[<int>ANNOTATION_KEY].present != group.chunks[<int>ANNOTATION_VALUE].present:
        return 0
    if not group.chunks[<int>ANNOTATION_KEY].present:
        put_zeros(&rows.annotation_starts, rows.row_count * sizeof(int64_t))
        return 1
    if not _same_nesting(keys, texts) or not _read_starts(keys, rows.row_count, &rows.annotation_starts, &count):
        return 0
    _take(&rows.annotation_keys, keys)
    _take(&rows.annotation_values, texts)
    return 1


cdef void _unsigned_series(RowColumns* rows) noexcept nogil:
    """Convert series numbers, which are unsigned 32-bit numbers in a signed column."""
    cdef int64_t* series = <int64_t*>rows.series.data
    cdef size_t row
    for row in range(rows.row_count):
        series[row] &= 0xFFFFFFFFll


cdef int _read_starts(const Column* column, size_t row_count, Buffer* starts, size_t* element_count) except -1 nogil:
    """Write the start of each row's elements, and the end of the last, from the levels of a required leaf of a list."""
    cdef const uint8_t* defs = column.def_levels.data
    cdef const uint8_t* reps = column.rep_levels.data
    cdef size_t index, rows = 0
    cdef int64_t elements = 0
    starts.size = 0
    for index in range(column.level_count):
        if reps[index] == 0:
            put_bytes(starts, &elements, sizeof(int64_t))
            rows += 1
        elif index == 0 or defs[index] == 0 or defs[index - 1] == 0:
            return 0
        elements += defs[index] != 0
    element_count[0] = elements
    put_bytes(starts, &elements, sizeof(int64_t))
    return rows == row_count and column.value_count == <size_t>elements


cdef bint _same_nesting(const Column* first, const Column* second) noexcept nogil:
    """Return whether a leaf has elements at the same positions as the first leaf of its list."""
    cdef size_t index
    if first.level_count != second.level_count:
        return False
    if memcmp(first.rep_levels.data, second.rep_levels.data, first.level_count) != 0:
        return False
    for index in range(first.level_count):
        if (first.def_levels.data[index] != 0) != (second.def_levels.data[index] != 0):
            return False
    return True


cdef bint _has_no_labels(const Column* column) noexcept nogil:
    cdef size_t index
    for index in range(column.level_count):
        if column.def_levels.data[index] > 1:
            return False
    return True


cdef int _spread(const Column* column, uint8_t present_above, size_t count, size_t unit, Buffer* values,
                 Buffer* valid) except -1 nogil:
    """Write a value and a validity byte per element; levels below ``present_above`` are rows without elements.

    A column that the table lacks (without levels) is null everywhere.
    """
    cdef const uint8_t* defs = column.def_levels.data
    cdef size_t index, element = 0, value = 0
    values.size = valid.size = 0
    put_zeros(values, count * unit)
    put_zeros(valid, count)
    if column.value_count == count and column.level_count == count:
        memcpy(values.data, column.values.data, count * unit)
        memset(valid.data, 1, count)
        return 0
    for index in range(column.level_count):
        if defs[index] < present_above:
            continue
        if defs[index] > present_above:
            memcpy(values.data + element * unit, column.values.data + value * unit, unit)
            valid.data[element] = 1
            value += 1
        element += 1
    return 0


def read_batches(source, int64_t size=-1):
    """Return a record batch per row group, None for a group or table that is left to pyarrow. For tests.

    ``source`` is the section, or a function that reads ranges of a section of ``size`` bytes.
    """
    cdef ProfilePages pages = ProfilePages(source, len(source) if size < 0 else size)
    cdef RowBlock block = RowBlock()
    cdef size_t number
    if not pages.understood:
        return None
    return [
        to_batch(&block.rows) if pages.read_group(number, block) else None for number in range(pages.group_count())
    ]
