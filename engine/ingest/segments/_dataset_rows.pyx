"""The compiled half of a segment builder that keeps one dataset: rows as columns in C, symbols in their interner.

Agrees with the plain twin ``segment_dataset`` in every byte of what ``build`` returns.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcpy

import numpy as np

from engine.core._byte_buffers cimport Buffer, buffer_free, buffer_reserve, put_bytes
from engine.formats.pprof._columns cimport Column, column_free, push, reserve
from engine.ingest.segments._intake cimport Intake
from engine.ingest.segments._label_groups cimport knows_spans
from engine.ingest.segments._normal_profile cimport Ordered, sample_count, strings_of
from engine.formats.pprof._pprof cimport COMMENTS, LABEL_KEYS, TYPES, UNITS, VALUES
from engine.formats.profile_block.symbols._symbol_arrays cimport StringItem
from engine.ingest.segments._symbol_interner cimport SymbolInterner

from engine.ingest.segments.segment_dataset import BuiltDataset, dataset_labels
from engine.ingest.segments.segment_table import RowColumns, encoded_table, indexed_series, ordered_rows, stored_labels
from engine.formats.profile_block.series.series_index import encode_series_index
from engine.ingest.segments.split import named_series

cdef enum:
    ID_BYTES = 16


cdef struct Row:
    uint8_t id[ID_BYTES]
    int64_t time_ns
    int64_t duration_ns
    int64_t drop_frames
    int64_t keep_frames
    int64_t default_sample_type
    uint64_t total
    size_t first_sample
    size_t sample_count
    size_t first_comment
    size_t comment_count
    uint32_t series
    uint8_t knows_spans


cdef int _compare(const void* left, const void* right) noexcept nogil:
    cdef const Ordered* one = <const Ordered*>left
    cdef const Ordered* other = <const Ordered*>right
    if one.hash != other.hash:
        return 1 if one.hash > other.hash else -1
    return <int>(one.number > other.number) - <int>(one.number < other.number)


cdef class DatasetBuilder:
    """Collects rows; rows of a series keep their arrival order where their times are equal."""

    cdef SymbolInterner symbols
    cdef Buffer rows
    cdef Column stack_ids       # of all rows, and so on
    cdef Column values
    cdef Column spans
    cdef Column traces
    cdef Column has_trace
    cdef Column comments
    cdef Column group_stacks    # of one group: the stack of each sample
    cdef Buffer order           # of one group: Ordered each, by stack
    cdef str service
    cdef dict known_series      # number by labels and the four strings of the value types
    cdef dict series            # number by stored labels
    cdef set profile_types
    cdef dict annotations       # of the rows that have any

    def __cinit__(self, str service, Intake intake):
        self.symbols = SymbolInterner(intake.seed)
        self.service = service
        self.known_series = {}
        self.series = {}
        self.profile_types = set()
        self.annotations = {}

    def __dealloc__(self):
        buffer_free(&self.rows)
        buffer_free(&self.order)
        column_free(&self.stack_ids)
        column_free(&self.values)
        column_free(&self.spans)
        column_free(&self.traces)
        column_free(&self.has_trace)
        column_free(&self.comments)
        column_free(&self.group_stacks)

    @property
    def row_count(self):
        return self.rows.size // sizeof(Row)

    def add(self, Intake intake, labels, bytes profile_id, annotations):
        """Add the intake's profile: a row for every label group and sample type that has values.

        Return the number of samples in them.
        """
        cdef size_t before = self.stack_ids.count, first_comment = self.comments.count, index
        cdef Column* columns = <Column*>intake.normal.columns
        cdef Column* tables = columns
        for index in range(intake.tables.columns[COMMENTS].count):
            push(&self.comments, intake.tables.columns[COMMENTS].items[index])
        if columns[LABEL_KEYS].count == 0:
            self._add_group(intake, labels, profile_id, annotations, first_comment, columns, columns, False)
        else:
            groups = intake.label_groups(labels)
            for own, numbers in groups:
                intake.gather(numbers, len(groups) > 1)
                if len(groups) > 1:
                    tables = <Column*>intake.group.columns
                self._add_group(
                    intake, own, profile_id, annotations, first_comment, intake.group.columns, tables, True
                )
        return self.stack_ids.count - before

    cdef int _add_group(self, Intake intake, labels, bytes profile_id, annotations, size_t first_comment,
                        const Column* samples, const Column* tables, bint is_linked) except -1:
        cdef size_t types = tables[TYPES].count, index, before
        cdef Row row
        if intake.is_small:
            self._take_symbols(intake, samples, tables)
        else:
            with nogil:
                self._take_symbols(intake, samples, tables)
        row.knows_spans = knows_spans(&intake.normal)
        memcpy(row.id, <char*>profile_id, ID_BYTES)
        row.time_ns, row.duration_ns = intake.normal.time_ns, intake.normal.duration_ns
        row.drop_frames, row.keep_frames = intake.normal.drop_frames, intake.normal.keep_frames
        row.default_sample_type = intake.normal.default_sample_type
        row.first_comment, row.comment_count = first_comment, self.comments.count - first_comment
        for index in range(types):
            row.first_sample = self.stack_ids.count
            row.total = self._add_samples(intake, samples[VALUES].items, types, index, is_linked)
            if row.total == 0:
                continue
            row.sample_count = self.stack_ids.count - row.first_sample
            row.series = self._series_number(intake, labels, index)
            if annotations:
                self.annotations[self.rows.size // sizeof(Row)] = annotations
            put_bytes(&self.rows, &row, sizeof(Row))
        return 0

    cdef int _take_symbols(self, Intake intake, const Column* samples, const Column* tables) except -1 nogil:
        cdef size_t string_count = intake.normal.strings.size // sizeof(StringItem)
        self.symbols.intern(samples, tables, strings_of(&intake.normal), string_count, &self.group_stacks)
        return self._order_by_stack()

    cdef int _order_by_stack(self) except -1 nogil:
        cdef size_t count = self.group_stacks.count, index
        cdef Ordered* order
        cdef bint in_order = True
        self.order.size = 0
        buffer_reserve(&self.order, count * sizeof(Ordered))
        order = <Ordered*>self.order.data
        for index in range(count):
            order[index].hash, order[index].number = self.group_stacks.items[index], index
            in_order = in_order and (index == 0 or order[index - 1].hash <= order[index].hash)
        if not in_order:
            qsort(order, count, sizeof(Ordered), _compare)
        return 0

    cdef uint64_t _add_samples(self, Intake intake, const uint64_t* values, size_t types, size_t type,
                               bint is_linked) except? 0xFFFFFFFFFFFFFFFF nogil:
        """Append the samples that have a value of this type; return the sum of the values, 0 if there are none."""
        cdef size_t count = self.group_stacks.count, index, sample
        cdef const Ordered* order = <const Ordered*>self.order.data
        cdef uint64_t total = 0
        reserve(&self.stack_ids, count)
        reserve(&self.values, count)
        for index in range(count):
            sample = order[index].number
            if values[sample * types + type] == 0:
                continue
            total += values[sample * types + type]
            push(&self.stack_ids, order[index].hash)
            push(&self.values, values[sample * types + type])
            push(&self.spans, intake.group.spans.items[sample] if is_linked else 0)
            push(&self.has_trace, intake.group.has_trace.items[sample] if is_linked else 0)
            push(&self.traces, intake.group.traces.items[2 * sample] if is_linked else 0)
            push(&self.traces, intake.group.traces.items[2 * sample + 1] if is_linked else 0)
        return total

    cdef uint32_t _series_number(self, Intake intake, labels, size_t type) except? 0xFFFFFFFF:
        cdef tuple key = (
            labels, intake.string(intake.normal.columns[TYPES].items[type]),
            intake.string(intake.normal.columns[UNITS].items[type]),
            intake.string(intake.normal.period_type), intake.string(intake.normal.period_unit),
        )
        known = self.known_series.get(key)
        if known is None:
            named = named_series(*key)
            self.profile_types.add(dict(named)["__profile_type__"])
            stored = stored_labels(named)
            known = self.known_series[key] = self.series.setdefault(stored, len(self.series))
        return known

    def build(self):
        """Lay the dataset out; there must be rows."""
        cdef const Row* rows = <const Row*>self.rows.data
        cdef size_t count = self.rows.size // sizeof(Row), index
        cdef uint32_t[::1] numbers = np.empty(count, np.uint32)
        cdef int64_t[::1] times = np.empty(count, np.int64)
        for index in range(count):
            numbers[index] = rows[index].series
            times[index] = rows[index].time_ns
        labels, order, ranks = ordered_rows(list(self.series), np.asarray(numbers), np.asarray(times))
        sorted_times = np.asarray(times)[order]
        series = indexed_series(labels, ranks, sorted_times)
        table = encoded_table(self._columns(order, ranks, sorted_times))
        return BuiltDataset(
            sections=(table, encode_series_index(series), self.symbols.encoded()),
            series=tuple(series),
            labels=tuple(dataset_labels(self.service, self.profile_types, self.symbols.is_symbolized())),
            min_time_ns=int(sorted_times.min()),
            max_time_ns=int(sorted_times.max()),
        )

    def _columns(self, const int64_t[::1] order, series, times):
        """Return all rows in this order."""
        cdef const Row* rows = <const Row*>self.rows.data
        cdef const Row* row
        cdef size_t count = order.shape[0], index, at = 0, comment = 0
        cdef uint8_t[:, ::1] ids = np.empty((count, ID_BYTES), np.uint8)
        cdef uint64_t[::1] totals = np.empty(count, np.uint64)
        cdef int64_t[:, ::1] fields = np.empty((4, count), np.int64)
        cdef int32_t[::1] sample_starts = np.zeros(count + 1, np.int32)
        cdef int32_t[::1] comment_starts = np.zeros(count + 1, np.int32)
        for index in range(count):
            row = &rows[order[index]]
            memcpy(&ids[index, 0], row.id, ID_BYTES)
            totals[index] = row.total
            fields[0, index], fields[1, index] = row.drop_frames, row.keep_frames
            fields[2, index], fields[3, index] = row.duration_ns, row.default_sample_type
            at += row.sample_count
            comment += row.comment_count
            sample_starts[index + 1] = <int32_t>at
            comment_starts[index + 1] = <int32_t>comment
        return RowColumns(
            ids=np.asarray(ids), series=series, times_ns=times, totals=np.asarray(totals),
            drop_frames=np.asarray(fields[0]), keep_frames=np.asarray(fields[1]), durations_ns=np.asarray(fields[2]),
            default_sample_types=np.asarray(fields[3]),
            sample_starts=np.asarray(sample_starts), comment_starts=np.asarray(comment_starts),
            comments=self._comments(order, comment),
            annotations=[self.annotations.get(number, ()) for number in order] if self.annotations else [],
            **self._samples(order, at),
        )

    def _comments(self, const int64_t[::1] order, size_t total):
        cdef const Row* rows = <const Row*>self.rows.data
        cdef int64_t[::1] comments = np.empty(total, np.int64)
        cdef size_t index, at = 0, item
        for index in range(<size_t>order.shape[0]):
            for item in range(rows[order[index]].comment_count):
                comments[at] = <int64_t>self.comments.items[rows[order[index]].first_comment + item]
                at += 1
        return np.asarray(comments)

    def _samples(self, const int64_t[::1] order, size_t total):
        """Return the samples of the rows, row after row."""
        cdef const Row* rows = <const Row*>self.rows.data
        cdef const Row* row
        cdef uint64_t[::1] stack_ids = np.empty(total, np.uint64)
        cdef int64_t[::1] values = np.empty(total, np.int64)
        cdef uint64_t[::1] spans = np.empty(total, np.uint64)
        cdef uint8_t[::1] without_span = np.empty(total, np.uint8)
        cdef uint64_t[:, ::1] traces = np.empty((total, 2), np.uint64)
        cdef uint8_t[::1] without_trace = np.empty(total, np.uint8)
        cdef size_t index, at = 0, item
        for index in range(<size_t>order.shape[0]):
            row = &rows[order[index]]
            for item in range(row.first_sample, row.first_sample + row.sample_count):
                stack_ids[at] = self.stack_ids.items[item]
                values[at] = <int64_t>self.values.items[item]
                spans[at] = self.spans.items[item]
                without_span[at] = not row.knows_spans
                traces[at, 0], traces[at, 1] = self.traces.items[2 * item], self.traces.items[2 * item + 1]
                without_trace[at] = not self.has_trace.items[item]
                at += 1
        return {
            "stack_ids": np.asarray(stack_ids), "values": np.asarray(values), "spans": np.asarray(spans),
            "without_span": np.asarray(without_span).view(np.bool_), "traces": np.asarray(traces).view(np.uint8),
            "without_trace": np.asarray(without_trace).view(np.bool_),
        }
