"""The compiled dataset merge of ``engine.lanes.profiles.merge.dataset_merge``; merge_model.py defines its rules.

The loop over rows runs without the GIL: it selects the next row among the sources' heads, drops it if its ID is a
duplicate, translates its stacks and appends it to the output's row group. It stops where Python is needed: when a
source must read its next row group or the output's row group is full.
"""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, qsort
from libc.string cimport memcmp, memset

import os

from engine.core._bad_object cimport REFERENCE, refuse
from engine.core._byte_buffers cimport Buffer, buffer_free, buffer_reserve, put_bytes
from engine.formats.profile_block.symbols._interning cimport Slots, lithify_hash_bytes, slots_fill, slots_free, slots_make_room, tag_of
from engine.lanes.profiles.merge._merge_source cimport Head, MergeSource, settle
from engine.formats.profile_block.symbols._output_partition cimport (
    OutputPartition, as_arrays, free_output_partition, new_output_partition,
)
from engine.formats.profile_block.table._row_columns cimport RowBlock, RowColumns, int_at, rows_append, rows_start, to_batch
from engine.formats.profile_block.series._series_arrays cimport LabelItem, RankedSeries, SeriesItem
from engine.formats.profile_block.series._series_index cimport series_object
from engine.lanes.profiles.merge._series_ranks cimport rank_series
from engine.formats.profile_block.series._series_writer cimport write_series_index
from engine.formats.profile_block.symbols._symbol_arrays cimport PartitionItem, find_partition
from engine.formats.profile_block.symbols._symbol_translation cimport Pending, Translation, pending_free, translate, translation_open
from engine.formats.profile_block.symbols._symbol_writer cimport write_symbols

from engine.lanes.profiles.merge._dataset_merge_py import merge_rows as merge_rows_plainly
from engine.lanes.profiles.merge._merge_source import SampleLabels
from engine.core.errors import BadObject
from engine.formats.profile_block.merge_model import (
    ROW_BYTES, ROW_GROUP_BYTES, ROW_GROUP_ROWS, SAMPLE_BYTES, MergedDataset,
)
from engine.formats.profile_block.table.profile_table import ProfileTableWriter

cdef size_t GROUP_ROWS = ROW_GROUP_ROWS
cdef size_t GROUP_BYTES = ROW_GROUP_BYTES
cdef size_t ROW_SIZE = ROW_BYTES
cdef size_t SAMPLE_SIZE = SAMPLE_BYTES

cdef enum:
    ID_BYTES = 16
    IDS_SCANNED = 8     # up to this many IDs of equal key are compared linearly; more use a hash table

cdef enum Pause:
    FINISHED = 0
    NEEDS_ROWS = 1
    GROUP_FULL = 2


def merge_rows(sources, *, selection=None, scratch, cancelled):
    """Merge the sources' datasets; with a selection, only the selected series.

    Raises BadObject with the damaged source, or MergeCancelled; scratch files are removed then.
    """
    sink = scratch.sink()
    try:
        return _Merge(sources, selection, cancelled, sink).run(scratch)
    except SampleLabels:
        sink.discard()
    except BaseException:
        sink.discard()
        raise
    return merge_rows_plainly(sources, selection=selection, scratch=scratch, cancelled=cancelled)


@cython.nonecheck(False)     # its methods run without the GIL, where Cython cannot raise the error
cdef class _Merge:
    cdef list _sources              # MergeSource
    cdef object _source_bytes
    cdef object _sink
    cdef object _writer
    cdef Head** _heads
    cdef size_t _count
    cdef size_t _current            # the source of the current row
    cdef Buffer _ranked
    cdef Buffer _series             # SeriesItem each, of the output
    cdef Buffer _labels
    cdef uint32_t _last_rank
    cdef Buffer _partitions         # OutputPartition* each
    cdef uint64_t _seed
    cdef Pending _pending
    cdef Buffer _stacks
    cdef RowBlock _group            # owns the output's row group
    cdef RowColumns* _rows          # the same, for code without the GIL
    cdef size_t _group_bytes
    cdef list _owners               # owners of strings that the group's rows point into
    cdef Buffer _ids                # IDs of the rows with the current key
    cdef Slots _id_slots
    cdef uint32_t _key_rank
    cdef int64_t _key_time
    cdef bint _has_key
    cdef size_t _rows_read, _row_count, _sample_count

    def __cinit__(self):
        memset(&self._pending, 0, sizeof(Pending))

    def __init__(self, sources, selection, cancelled, sink):
        cdef size_t index
        cdef MergeSource source
        self._sources = [
            MergeSource(each, None if selection is None else selection[number], cancelled)
            for number, each in enumerate(sources)
        ]
        self._source_bytes = sum([each.size for each in sources])
        self._sink = sink
        self._writer = ProfileTableWriter(sink)
        self._count = len(self._sources)
        self._heads = <Head**>calloc(self._count + 1, sizeof(Head*))
        if self._heads == NULL:
            raise MemoryError()
        for index, source in enumerate(self._sources):
            self._heads[index] = &source.head
        self._seed = int.from_bytes(os.urandom(8), "little")
        self._group = RowBlock()
        self._rows = &self._group.rows
        self._owners = []
        rows_start(self._rows)

    def __dealloc__(self):
        cdef size_t index
        for index in range(self._partitions.size // sizeof(OutputPartition*)):
            free_output_partition((<OutputPartition**>self._partitions.data)[index])
        free(self._heads)
        pending_free(&self._pending)
        slots_free(&self._id_slots)
        buffer_free(&self._ranked)
        buffer_free(&self._series)
        buffer_free(&self._labels)
        buffer_free(&self._partitions)
        buffer_free(&self._stacks)
        buffer_free(&self._ids)

    def run(self, scratch):
        """Merge everything and return the MergedDataset."""
        cdef MergeSource source
        cdef Pause pause = NEEDS_ROWS
        try:
            for self._current in range(self._count):
                source = self._sources[self._current]
                source.load()
            rank_series(self._sources, &self._ranked)
            for self._current in range(self._count):
                source = self._sources[self._current]
                source.start()
            while pause != FINISHED:
                with nogil:
                    pause = <Pause>self._merge_until_pause()
                if pause == NEEDS_ROWS:
                    self._refill(self._sources[self._current])
                elif pause == GROUP_FULL:
                    self._flush()
        except BadObject as error:
            if error.object_name or self._current >= self._count:
                raise
            raise error.in_object(self._sources[self._current].object_name) from error
        self._flush()
        self._writer.close()
        return self._finish(scratch)

    cdef int _refill(self, MergeSource source) except -1:
        owner = source.block_owner()
        if owner is not None:
            self._owners.append(owner)
        return source.refill()

    cdef int _flush(self) except -1:
        """Write the buffered rows as one row group."""
        if self._rows.row_count:
            self._writer.write(to_batch(self._rows))
        rows_start(self._rows)
        self._group_bytes = 0
        self._owners = []
        return 0

    cdef int _merge_until_pause(self) except -1 nogil:
        """Merge rows until Python is needed for the source ``_current``."""
        cdef Head* head
        cdef size_t samples
        while True:
            if self._group_bytes >= GROUP_BYTES:
                return GROUP_FULL
            if not self._pick():
                return FINISHED
            head = self._heads[self._current]
            if self._is_new_id(head):
                if self._rows.row_count == GROUP_ROWS:
                    self._forget_id()
                    return GROUP_FULL
                samples = int_at(&head.rows.sample_starts, head.row + 1) - int_at(&head.rows.sample_starts, head.row)
                self._emit(head, samples)
                self._group_bytes += ROW_SIZE + SAMPLE_SIZE * samples
            self._rows_read += 1
            head.row += 1
            if not settle(head):
                return NEEDS_ROWS

    cdef bint _pick(self) noexcept nogil:
        """Set the current source to the one with the smallest next row (ties: the first); return false at the end."""
        cdef Head* best = NULL
        cdef Head* head
        cdef size_t index
        for index in range(self._count):
            head = self._heads[index]
            if head.live and (
                best == NULL or head.series.rank < best.series.rank
                or (head.series.rank == best.series.rank and head.time_ns < best.time_ns)
            ):
                best = head
                self._current = index
        return best != NULL

    cdef bint _is_new_id(self, const Head* head) except -1 nogil:
        """Return whether no earlier row of equal key has this ID. Always true with one source."""
        cdef const char* row_id = <const char*>head.rows.ids.data + ID_BYTES * head.row
        cdef size_t known, index
        if self._count == 1:
            return True
        if not self._has_key or head.series.rank != self._key_rank or head.time_ns != self._key_time:
            self._has_key = True
            self._key_rank, self._key_time = head.series.rank, head.time_ns
            self._ids.size = 0
            slots_free(&self._id_slots)
        known = self._ids.size // ID_BYTES
        if known <= IDS_SCANNED:
            for index in range(known):
                if memcmp(self._ids.data + ID_BYTES * index, row_id, ID_BYTES) == 0:
                    return False
            put_bytes(&self._ids, row_id, ID_BYTES)
            return True
        if self._id_slots.used == 0:
            for index in range(known):
                self._note_id(index)
        put_bytes(&self._ids, row_id, ID_BYTES)
        if self._note_id(known):
            return True
        self._ids.size -= ID_BYTES
        return False

    cdef void _forget_id(self) noexcept nogil:
        """Remove the ID that was added last: its row must wait for a new row group."""
        if self._count > 1:
            self._ids.size -= ID_BYTES
            slots_free(&self._id_slots)

    cdef bint _note_id(self, size_t number) except -1 nogil:
        """Insert the number-th ID into the hash table; return false if an equal one exists."""
        cdef const unsigned char* row_id = self._ids.data + ID_BYTES * number
        cdef uint32_t tag = tag_of(lithify_hash_bytes(self._seed, row_id, ID_BYTES))
        cdef size_t position, index
        slots_make_room(&self._id_slots)
        position = tag & self._id_slots.mask
        while self._id_slots.entries[position]:
            index = <uint32_t>self._id_slots.entries[position] - 1
            if memcmp(self._ids.data + ID_BYTES * index, row_id, ID_BYTES) == 0:
                return False
            position = (position + 1) & self._id_slots.mask
        slots_fill(&self._id_slots, position, tag, number)
        return True

    cdef int _emit(self, Head* head, size_t samples) except -1 nogil:
        """Append a row to the output: series, stacks and all other columns."""
        cdef Translation* translation = self._translation(head)
        cdef const int64_t* ids = <const int64_t*>head.rows.stacks.data + int_at(&head.rows.sample_starts, head.row)
        self._stacks.size = 0
        buffer_reserve(&self._stacks, samples * sizeof(int64_t))
        translate(translation, &self._pending, ids, samples, <int64_t*>self._stacks.data)
        self._enter_series(head.series.rank, head.time_ns)
        rows_append(self._rows, head.rows, head.row, self._series.size // sizeof(SeriesItem) - 1,
                    <const int64_t*>self._stacks.data)
        self._row_count += 1
        self._sample_count += samples
        return 0

    cdef int _enter_series(self, uint32_t rank, int64_t time_ns) except -1 nogil:
        """Start a series of the output, or extend the time range of the current one."""
        cdef size_t count = self._series.size // sizeof(SeriesItem)
        cdef const RankedSeries* ranked = &(<const RankedSeries*>self._ranked.data)[rank]
        cdef SeriesItem item
        if count and self._last_rank == rank:
            (<SeriesItem*>self._series.data)[count - 1].max_time_ns = time_ns
            return 0
        item = ranked.item[0]
        item.min_time_ns = item.max_time_ns = time_ns
        item.position = <uint32_t>count
        item.first_label = <uint32_t>(self._labels.size // sizeof(LabelItem))
        put_bytes(&self._labels, ranked.labels, item.label_count * sizeof(LabelItem))
        self._last_rank = rank
        return put_bytes(&self._series, &item, sizeof(SeriesItem))

    cdef Translation* _translation(self, const Head* head) except NULL nogil:
        """Return the translation of a row's symbol partition; open it for the first row."""
        cdef uint64_t partition_id = <uint64_t>int_at(&head.rows.partitions, head.row)
        cdef PartitionItem* partition = find_partition(head.partitions, head.partition_count, partition_id)
        cdef Translation* translation
        if partition == NULL:
            refuse(REFERENCE, b"profiles", -1, b"a row of a partition without symbols")
        translation = &head.translations[partition - head.partitions]
        if translation.memory == NULL:
            with gil:
                translation_open(translation, partition, self._output(partition_id))
        return translation

    cdef OutputPartition* _output(self, uint64_t partition_id) except NULL:
        """Return the output partition with an id; create it if there is none."""
        cdef OutputPartition** outputs = <OutputPartition**>self._partitions.data
        cdef OutputPartition* output
        cdef size_t index
        for index in range(self._partitions.size // sizeof(OutputPartition*)):
            if outputs[index].id == partition_id:
                return outputs[index]
        buffer_reserve(&self._partitions, sizeof(OutputPartition*))
        output = new_output_partition(partition_id, self._seed)
        put_bytes(&self._partitions, &output, sizeof(OutputPartition*))
        return output

    cdef object _finish(self, scratch):
        cdef SeriesItem* items = <SeriesItem*>self._series.data
        cdef LabelItem* labels = <LabelItem*>self._labels.data
        cdef size_t index, count = self._series.size // sizeof(SeriesItem)
        series = tuple([series_object(&items[index], labels + items[index].first_label) for index in range(count)])
        profiles = self._sink.finish()
        try:
            index_section = scratch.section(self._series_section())
            symbol_section = scratch.section(self._symbol_section())
        except BaseException:
            profiles.close()
            raise
        return MergedDataset(
            sections=(profiles, index_section, symbol_section),
            series=series,
            row_count=self._row_count,
            rows_read=self._rows_read,
            rows_dropped=self._rows_read - self._row_count,
            sample_count=self._sample_count,
            min_time_ns=min([entry.min_time_ns for entry in series], default=0),
            max_time_ns=max([entry.max_time_ns for entry in series], default=0),
            bytes_read=self._source_bytes,
        )

    cdef bytes _series_section(self):
        cdef Buffer out = Buffer(NULL, 0, 0)
        try:
            with nogil:
                write_series_index(&out, <SeriesItem*>self._series.data, self._series.size // sizeof(SeriesItem),
                                   <LabelItem*>self._labels.data)
            return (<char*>out.data)[:out.size]
        finally:
            buffer_free(&out)

    cdef bytes _symbol_section(self):
        """Return the symbols section: the output partitions, sorted by id."""
        cdef Buffer out = Buffer(NULL, 0, 0)
        cdef Buffer views = Buffer(NULL, 0, 0)
        cdef PartitionItem view
        cdef size_t index, count = self._partitions.size // sizeof(OutputPartition*)
        try:
            with nogil:
                for index in range(count):
                    view = as_arrays((<OutputPartition**>self._partitions.data)[index])
                    put_bytes(&views, &view, sizeof(PartitionItem))
                if count:
                    qsort(views.data, count, sizeof(PartitionItem), _compare_partitions)
                write_symbols(&out, <PartitionItem*>views.data, count)
            return (<char*>out.data)[:out.size]
        finally:
            buffer_free(&out)
            buffer_free(&views)


cdef int _compare_partitions(const void* left, const void* right) noexcept nogil:
    cdef uint64_t one = (<const PartitionItem*>left).id, other = (<const PartitionItem*>right).id
    return <int>(one > other) - <int>(one < other)
