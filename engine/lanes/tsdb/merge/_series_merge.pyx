"""Compiled implementation of ``engine.lanes.tsdb.merge.series_merge``."""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove

from engine.core._byte_buffers cimport Buffer, buffer_free, buffer_reserve, put_bytes, put_u64, store_u32_be
from engine.core._checksum_kernels cimport crc32c_of
from engine.lanes.tsdb.merge._merge_order cimport Order, exhausted_source, take_next
from engine.lanes.tsdb.merge._merge_pieces cimport (
    CRC_BYTES, ENCODING_XOR, FAULTY, HEADER_BYTES, LIMIT, MERGED, RARE, REFUSED, Fault, Piece, Source, decode_piece,
    fail, is_earlier, is_float, is_same, read_piece,
)
from engine.lanes.tsdb.merge._sample_merge cimport Samples, free_samples, make_room, merge_two
from engine.formats.prometheus.chunks._xor cimport CHUNK_BYTES_EXTRA, SAMPLE_BYTES_MAX, encode_samples

import numpy as np

from engine.core.errors import (
    BadObject, BadReference, ChecksumMismatch, LimitExceeded, MergeRefused, Truncated, UnknownFormat,
)
from engine.formats.prometheus.chunks.chunk_files import chunk_place, file_name
from engine.formats.prometheus.errors import Inconsistent, OutOfOrder
from engine.lanes.tsdb.merge.merge_model import MergeCounts, StoredChunk, Winner
from engine.formats.prometheus.merge_stops import MergedSeries, MergeStop
from engine.formats.prometheus.model import Chunk
from engine.lanes.tsdb.merge.overlaps import PlacedChunk
from engine.formats.prometheus.index.series_batch import SeriesBatch

cdef enum:
    CHUNK_BYTES = 64  # memory of a chunk besides its record
    SERIES_MOST = 4096
    LENGTH_BYTES_MAX = 10
    SHARE_BYTES = 10  # estimated bytes of a record besides its data

cdef tuple ERRORS = (
    BadObject, Truncated, LimitExceeded, BadReference, ChecksumMismatch, UnknownFormat, OutOfOrder, Inconsistent,
)

ctypedef struct OutChunk:
    const uint8_t* sealed  # NULL: at ``offset`` of the encoded bytes, without a checksum
    size_t offset
    size_t size
    int64_t min_time
    int64_t max_time
    uint32_t samples

ctypedef struct Counts:
    uint64_t series_read
    uint64_t chunks_read
    uint64_t samples_read
    uint64_t bytes_read
    uint64_t series_written
    uint64_t chunks_written
    uint64_t samples_written
    uint64_t float_samples_written


@cython.nonecheck(False)  # Methods run without the GIL and cannot raise.
cdef class SeriesMerge:
    """Merges series of several sources. ``run`` returns what is needed next, ``take`` the merged series.

    ``sources`` are the blocks' names and the bytes of their chunk files, in merge order.
    """

    cdef readonly object counts
    cdef Order _order
    cdef size_t _source_count
    cdef list _names
    cdef list _files
    cdef list _loaded
    cdef bint _is_ours
    cdef bint _is_waiting  # for the chunks of a series that the caller merges
    cdef size_t _samples_per_chunk
    cdef uint64_t _file_bytes
    cdef uint64_t _record_bytes_max  # limit of the chunks of a series
    cdef size_t _window_samples  # limit of overlapping chunks decoded together
    cdef uint64_t _file_count
    cdef uint64_t _position
    cdef size_t* _piece_starts  # per taken source, and the end
    cdef size_t* _piece_next
    cdef Buffer _pieces
    cdef Buffer _group
    cdef Buffer _out
    cdef Buffer _encoded
    cdef Samples _samples
    cdef Samples _other
    cdef Samples _merged
    cdef Fault _fault
    cdef Counts _counts
    cdef Buffer _label_starts
    cdef Buffer _label_refs
    cdef Buffer _chunk_starts
    cdef Buffer _min_times
    cdef Buffer _max_times
    cdef Buffer _chunk_refs
    cdef bytearray _records  # resized only while no view of it exists
    cdef uint8_t* _record_data
    cdef size_t _record_bytes
    cdef size_t _record_room
    cdef Buffer _file_starts
    cdef size_t _series

    def __cinit__(self, sources, rules, budget):
        cdef size_t number, place
        cdef const uint8_t[::1] data
        self._source_count = len(sources)
        self._names = [name for name, _ in sources]
        self._files = [list(files) for _, files in sources]
        self._loaded = [None] * len(sources)
        self.counts = MergeCounts()
        self._is_ours = rules.winner is Winner.OURS
        self._samples_per_chunk = rules.samples_per_chunk
        self._file_bytes = rules.chunk_file_bytes
        self._record_bytes_max = budget.record_bytes
        self._window_samples = budget.window_samples
        self._records = bytearray()
        self._order.sources = <Source*>_zeroed(self._source_count, sizeof(Source))
        self._order.heap = <uint32_t*>_zeroed(self._source_count, sizeof(uint32_t))
        self._order.taken = <uint32_t*>_zeroed(self._source_count, sizeof(uint32_t))
        self._piece_starts = <size_t*>_zeroed(self._source_count + 1, sizeof(size_t))
        self._piece_next = <size_t*>_zeroed(self._source_count, sizeof(size_t))
        for number, files in enumerate(self._files):
            self._order.taken[number] = <uint32_t>number
            self._order.sources[number].files = <const uint8_t**>_zeroed(len(files), sizeof(void*))
            self._order.sources[number].file_sizes = <size_t*>_zeroed(len(files), sizeof(size_t))
            self._order.sources[number].file_count = len(files)
            for place, file in enumerate(files):
                data = file
                self._order.sources[number].files[place] = &data[0] if data.shape[0] else NULL
                self._order.sources[number].file_sizes[place] = data.shape[0]
        self._order.taken_count = self._source_count
        self._clear()

    def __dealloc__(self):
        cdef size_t number
        if self._order.sources != NULL:
            for number in range(self._source_count):
                free(self._order.sources[number].files)
                free(self._order.sources[number].file_sizes)
        free(self._order.sources)
        free(self._order.heap)
        free(self._order.taken)
        free(self._piece_starts)
        free(self._piece_next)
        free_samples(&self._samples)
        free_samples(&self._other)
        free_samples(&self._merged)
        buffer_free(&self._pieces)
        buffer_free(&self._group)
        buffer_free(&self._out)
        buffer_free(&self._encoded)
        buffer_free(&self._label_starts)
        buffer_free(&self._label_refs)
        buffer_free(&self._chunk_starts)
        buffer_free(&self._min_times)
        buffer_free(&self._max_times)
        buffer_free(&self._chunk_refs)
        buffer_free(&self._file_starts)

    def load(self, size_t source, batch, bytes overlay):
        """Load a source's next series, which have chunks; those of file OVERLAY_FILE are records in ``overlay``."""
        cdef const int64_t[::1] label_starts = batch.label_starts
        cdef const int64_t[::1] chunk_starts = batch.chunk_starts
        cdef const uint32_t[::1] label_refs = batch.label_refs
        cdef const int64_t[::1] min_times = batch.min_times
        cdef const int64_t[::1] max_times = batch.max_times
        cdef const uint64_t[::1] chunk_refs = batch.chunk_refs
        cdef Source* into
        cdef Py_ssize_t count = len(batch.ids)
        if source >= self._source_count:
            raise ValueError("there is no such source")
        into = &self._order.sources[source]
        if into.next_series < into.series:
            raise ValueError("the source has series that were not merged")
        _check_starts(label_starts, count, label_refs.shape[0] // 2)
        _check_starts(chunk_starts, count, min(min_times.shape[0], max_times.shape[0], chunk_refs.shape[0]))
        self._loaded[source] = (batch, overlay)
        into.overlay = <const uint8_t*><const char*>overlay
        into.overlay_size = len(overlay)
        into.series = count
        into.next_series = 0
        into.label_starts = &label_starts[0]
        into.chunk_starts = &chunk_starts[0]
        into.label_refs = &label_refs[0] if label_refs.shape[0] else NULL
        into.min_times = &min_times[0] if min_times.shape[0] else NULL
        into.max_times = &max_times[0] if max_times.shape[0] else NULL
        into.chunk_refs = &chunk_refs[0] if chunk_refs.shape[0] else NULL

    def end(self, size_t source):
        """Mark a source as having no more series."""
        if source >= self._source_count:
            raise ValueError("there is no such source")
        self._order.sources[source].has_ended = True

    def run(self, size_t most_bytes):
        """Continue the merge; ``MergeStop.NEEDS`` comes with the source, ``FULL`` after about ``most_bytes`` of records."""
        cdef int64_t exhausted = -1
        cdef int status = MERGED
        cdef bint is_full = False, is_done = False
        if self._is_waiting:
            raise ValueError("the chunks of the pending series were not put")
        try:
            with nogil:
                while status == MERGED:
                    is_full = self._record_bytes >= most_bytes or self._series >= SERIES_MOST
                    if is_full:
                        break
                    exhausted = exhausted_source(&self._order)
                    if exhausted >= 0:
                        break
                    take_next(&self._order)
                    is_done = self._order.taken_count == 0
                    if is_done:
                        break
                    status = self._merge_series()
        finally:
            self._copy_counts()
        if status == FAULTY:
            self._raise()
        if status == RARE:
            self._is_waiting = True
            return MergeStop.PLAIN, -1
        if is_full:
            return MergeStop.FULL, -1
        return (MergeStop.DONE, -1) if is_done else (MergeStop.NEEDS, exhausted)

    def plain(self):
        """Return the chunks, by source, of the series that the caller must merge and ``put``."""
        cdef const Piece* pieces = <const Piece*>self._pieces.data
        cdef size_t taken, place
        if not self._is_waiting:
            raise ValueError("no series is pending")
        columns = []
        for taken in range(self._order.taken_count):
            column = []
            for place in range(self._piece_starts[taken], self._piece_starts[taken + 1]):
                data = (<const char*>pieces[place].sealed)[1:pieces[place].size]
                stored = StoredChunk(
                    pieces[place].min_time, pieces[place].max_time, Chunk(pieces[place].sealed[0], data)
                )
                number = pieces[place].source
                column.append(PlacedChunk(stored, self._names[number], pieces[place].ref, number))
            columns.append(column)
        return columns

    def put(self, chunks):
        """Append the merged chunks of the current series."""
        cdef OutChunk out
        cdef bytes sealed
        if not self._is_waiting:
            raise ValueError("no series is pending")
        self._out.size = self._encoded.size = 0
        for min_time, max_time, chunk in chunks:
            sealed = bytes([chunk.encoding]) + chunk.data
            out.sealed, out.offset, out.size = NULL, self._encoded.size, len(sealed)
            out.min_time, out.max_time, out.samples = min_time, max_time, chunk.sample_count
            put_bytes(&self._encoded, <const char*>sealed, out.size)
            put_bytes(&self._out, &out, sizeof(OutChunk))
        self._write_series()
        self._is_waiting = False
        self._copy_counts()

    def take(self):
        """Return the series merged since the last call; records are valid only until the merge continues."""
        batch = SeriesBatch(
            0,
            np.zeros(self._series, np.uint32),
            _array(&self._label_starts, np.int64),
            _array(&self._label_refs, np.uint32),
            _array(&self._chunk_starts, np.int64),
            _array(&self._min_times, np.int64),
            _array(&self._max_times, np.int64),
            _array(&self._chunk_refs, np.uint64),
        )
        records = memoryview(self._records).toreadonly()[:self._record_bytes]
        merged = MergedSeries(batch, records, _array(&self._file_starts, np.uint64).tolist())
        self._clear()
        return merged

    cdef int _clear(self) except -1:
        self._series = 0
        self._label_starts.size = self._label_refs.size = self._chunk_starts.size = 0
        self._min_times.size = self._max_times.size = self._chunk_refs.size = 0
        self._record_bytes = self._file_starts.size = 0
        put_u64(&self._label_starts, 0)
        put_u64(&self._chunk_starts, 0)
        return 0

    cdef int _merge_series(self) except -1 nogil:
        """Merge the chunks of the current series and write it, unless the caller must merge it."""
        cdef int status = self._read_pieces()
        cdef const Piece* pieces
        cdef const Piece* found
        cdef const Piece* last = NULL
        cdef size_t taken, source = 0
        cdef int64_t end = 0
        if status != MERGED:
            return status
        pieces = <const Piece*>self._pieces.data
        self._out.size = self._encoded.size = self._group.size = 0
        while True:
            found = NULL
            for taken in range(self._order.taken_count):
                if self._piece_next[taken] < self._piece_starts[taken + 1] and (
                        found == NULL or is_earlier(&pieces[self._piece_next[taken]], found)):
                    found = &pieces[self._piece_next[taken]]
                    source = taken
            if found == NULL:
                break
            self._piece_next[source] += 1
            if last != NULL and found.min_time <= end:
                if is_same(found, last):
                    continue
                end = max(end, found.max_time)
            else:
                status = self._merge_group()
                if status != MERGED:
                    return status
                end = found.max_time
            put_bytes(&self._group, &found, sizeof(void*))
            last = found
        status = self._merge_group()
        if status != MERGED:
            return status
        self._write_series()
        return MERGED

    cdef int _read_pieces(self) except -1 nogil:
        cdef size_t taken, place, series, first, count, start, like
        cdef uint64_t held = 0, own
        cdef uint32_t number
        cdef Source* source
        cdef Piece* piece
        cdef const Piece* pieces
        self._pieces.size = 0
        for taken in range(self._order.taken_count):
            number = self._order.taken[taken]
            source = &self._order.sources[number]
            series = source.next_series - 1
            first = <size_t>source.chunk_starts[series]
            count = <size_t>(source.chunk_starts[series + 1] - source.chunk_starts[series])
            start = self._pieces.size // sizeof(Piece)
            self._piece_starts[taken] = self._piece_next[taken] = start
            buffer_reserve(&self._pieces, count * sizeof(Piece))
            self._pieces.size += count * sizeof(Piece)
            self._piece_starts[taken + 1] = start + count
            pieces = <const Piece*>self._pieces.data
            own = 0
            like = self._piece_starts[taken - 1] if taken else start
            for place in range(count):
                piece = <Piece*>self._pieces.data + start + place
                piece.source = number
                piece.min_time = source.min_times[first + place]
                piece.max_time = source.max_times[first + place]
                piece.ref = source.chunk_refs[first + place]
                while like < start and pieces[like].min_time < piece.min_time:
                    like += 1
                if read_piece(source, piece, &pieces[like] if like < start else NULL, &self._fault) != MERGED:
                    return FAULTY
                self._counts.samples_read += piece.samples
                self._counts.bytes_read += piece.record_bytes
                own += CHUNK_BYTES + piece.record_bytes
                if own > self._record_bytes_max:
                    return fail(&self._fault, LIMIT, number, piece.ref, 0,
                                 b"the chunks of a series exceed the memory limit of a series")
            self._counts.series_read += 1
            self._counts.chunks_read += count
            held += own
            if held > self._record_bytes_max:
                return fail(&self._fault, REFUSED, number, source.chunk_refs[first], 0,
                             b"the chunks of a series in all blocks exceed the memory budget")
        return MERGED

    cdef int _merge_group(self) except -1 nogil:
        """Merge a group of overlapping chunks into new ones; a single chunk is kept.

        Chunks are ordered by their first times. However long the group is, only a window of it is decoded at a time:
        later chunks have no samples before their first time.
        """
        cdef const Piece** group = <const Piece**>self._group.data
        cdef size_t count = self._group.size // sizeof(void*), place, first = 0, samples
        cdef OutChunk out
        cdef int status
        if count == 0:
            return MERGED
        self._group.size = 0
        if count == 1:
            out.sealed, out.offset, out.size = group[0].sealed, 0, group[0].size
            out.min_time, out.max_time, out.samples = group[0].min_time, group[0].max_time, group[0].samples
            put_bytes(&self._out, &out, sizeof(OutChunk))
            return MERGED
        for place in range(count):
            if group[place].sealed[0] != ENCODING_XOR:
                return RARE
        self._samples.count = 0
        while first < count:
            samples = group[first].samples
            place = first + 1
            while place < count and samples + group[place].samples <= self._window_samples:
                samples += group[place].samples
                place += 1
            status = self._merge_window(group + first, place - first)
            if status != MERGED:
                return status
            self._cut(self._samples.count if place == count else self._whole_runs_before(group[place].min_time))
            if self._encoded.size > self._record_bytes_max:
                return fail(&self._fault, REFUSED, group[first].source, group[first].ref, 0,
                             b"overlapping samples exceed the memory budget of the merge")
            first = place
        return MERGED

    cdef int _merge_window(self, const Piece** pieces, size_t count) except -1 nogil:
        """Merge the samples of some chunks with those left from earlier chunks."""
        cdef size_t place, taken
        cdef bint is_first = self._samples.count == 0
        cdef Samples swapped
        cdef int status
        for taken in range(self._order.taken_count):
            self._other.count = 0
            for place in range(count):
                if pieces[place].source == self._order.taken[taken]:
                    status = decode_piece(pieces[place], &self._samples if is_first else &self._other, &self._fault)
                    if status != MERGED:
                        return status
            if is_first:
                is_first = self._samples.count == 0
            elif self._other.count:
                make_room(&self._merged, self._samples.count + self._other.count)
                if not merge_two(&self._samples, &self._other, &self._merged, self._is_ours):
                    return RARE
                swapped = self._samples
                self._samples = self._merged
                self._merged = swapped
        return MERGED

    cdef size_t _whole_runs_before(self, int64_t time) noexcept nogil:
        """Return the number of samples in complete runs before a time."""
        cdef size_t low = 0, high = self._samples.count, middle
        while low < high:
            middle = (low + high) // 2
            if self._samples.times[middle] < time:
                low = middle + 1
            else:
                high = middle
        return low - low % self._samples_per_chunk

    cdef int _cut(self, size_t most) except -1 nogil:
        """Encode the first ``most`` merged samples in runs, and keep the rest."""
        cdef size_t first = 0, count
        cdef OutChunk out
        while first < most:
            count = min(most - first, self._samples_per_chunk)
            buffer_reserve(&self._encoded, 1 + count * SAMPLE_BYTES_MAX + CHUNK_BYTES_EXTRA)
            out.sealed, out.offset, out.samples = NULL, self._encoded.size, <uint32_t>count
            self._encoded.data[out.offset] = ENCODING_XOR
            out.size = 1 + encode_samples(self._samples.times + first, self._samples.values + first, count,
                                          self._encoded.data + out.offset + 1)
            out.min_time, out.max_time = self._samples.times[first], self._samples.times[first + count - 1]
            self._encoded.size += out.size
            put_bytes(&self._out, &out, sizeof(OutChunk))
            first += count
        self._samples.count -= first
        memmove(self._samples.times, self._samples.times + first, 8 * self._samples.count)
        memmove(self._samples.values, self._samples.values + first, 8 * self._samples.count)
        return 0

    cdef int _write_series(self) except -1 nogil:
        """Append the current series with the chunks in ``_out``."""
        cdef const Source* source = &self._order.sources[self._order.taken[0]]
        cdef size_t series = source.next_series - 1
        cdef int64_t first = source.label_starts[series], last = source.label_starts[series + 1]
        cdef const OutChunk* chunks = <const OutChunk*>self._out.data
        cdef size_t count = self._out.size // sizeof(OutChunk), place
        cdef uint64_t begin = self._position, estimate = 0
        cdef bint is_cut = False, starts_file
        cdef size_t needed = 0
        for place in range(count):
            needed += LENGTH_BYTES_MAX + chunks[place].size + CRC_BYTES
        if needed > self._record_room - self._record_bytes:
            self._make_record_room(needed)
        for place in range(count):
            estimate += chunks[place].size - 1 + SHARE_BYTES
            if begin == 0 and place == 0:
                starts_file = True
            elif begin > HEADER_BYTES and not is_cut:
                starts_file = estimate + begin > self._file_bytes
            else:
                starts_file = place > 0 and estimate + HEADER_BYTES > self._file_bytes
            if starts_file:
                estimate = chunks[place].size - 1 + SHARE_BYTES
                is_cut = True
                put_u64(&self._file_starts, self._record_bytes)
                self._file_count += 1
                self._position = HEADER_BYTES
            self._write_chunk(&chunks[place])
        put_bytes(&self._label_refs, source.label_refs + 2 * first, 8 * <size_t>(last - first))
        put_u64(&self._label_starts, self._label_refs.size // 8)
        put_u64(&self._chunk_starts, self._chunk_refs.size // 8)
        self._series += 1
        self._counts.series_written += 1
        self._counts.chunks_written += count
        return 0

    cdef int _make_record_room(self, size_t needed) except -1 nogil:
        cdef size_t room = max(2 * self._record_room, self._record_bytes + needed)
        with gil:
            PyByteArray_Resize(self._records, room)
            self._record_data = <uint8_t*>PyByteArray_AS_STRING(self._records)
        self._record_room = room
        return 0

    cdef int _write_chunk(self, const OutChunk* chunk) except -1 nogil:
        """Append a chunk; the record buffer must have room for it."""
        cdef uint8_t* record = self._record_data + self._record_bytes
        cdef size_t start = 0, length = chunk.size - 1
        cdef const uint8_t* sealed = chunk.sealed
        while length >= 0x80:
            record[start] = <uint8_t>(length | 0x80)
            length >>= 7
            start += 1
        record[start] = <uint8_t>length
        start += 1
        if sealed != NULL:
            memcpy(record + start, sealed, chunk.size + CRC_BYTES)
        else:
            sealed = self._encoded.data + chunk.offset
            memcpy(record + start, sealed, chunk.size)
            store_u32_be(record + start + chunk.size, crc32c_of(sealed, chunk.size))
        put_u64(&self._min_times, <uint64_t>chunk.min_time)
        put_u64(&self._max_times, <uint64_t>chunk.max_time)
        put_u64(&self._chunk_refs, (self._file_count - 1) << 32 | self._position)
        self._record_bytes += start + chunk.size + CRC_BYTES
        self._position += start + chunk.size + CRC_BYTES
        self._counts.samples_written += chunk.samples
        if is_float(sealed[0]):
            self._counts.float_samples_written += chunk.samples
        return 0

    cdef int _copy_counts(self) except -1:
        self.counts.series_read = self._counts.series_read
        self.counts.chunks_read = self._counts.chunks_read
        self.counts.samples_read = self._counts.samples_read
        self.counts.bytes_read = self._counts.bytes_read
        self.counts.series_written = self._counts.series_written
        self.counts.chunks_written = self._counts.chunks_written
        self.counts.samples_written = self._counts.samples_written
        self.counts.float_samples_written = self._counts.float_samples_written
        return 0

    cdef int _raise(self) except -1:
        number, offset = chunk_place(self._fault.ref)
        reason = self._fault.reason.decode()
        name = self._names[self._fault.source]
        if self._fault.kind == REFUSED:
            raise MergeRefused(f"{name}: {file_name(number)} at offset {offset}: {reason}")
        raise ERRORS[self._fault.kind](file_name(number), offset + self._fault.offset, reason, name)


cdef void* _zeroed(size_t count, size_t size) except NULL:
    cdef void* found = calloc(count + 1, size)
    if found == NULL:
        raise MemoryError()
    return found


cdef object _array(const Buffer* buffer, kind):
    return np.frombuffer((<const char*>buffer.data)[:buffer.size], kind)


cdef int _check_starts(const int64_t[::1] starts, Py_ssize_t count, Py_ssize_t size) except -1:
    """Reject a batch with inconsistent arrays, which the code below relies on."""
    cdef Py_ssize_t place
    if starts.shape[0] != count + 1 or starts[0] < 0 or starts[count] > size:
        raise ValueError("the arrays of a batch of series differ in length")
    for place in range(count):
        if starts[place] > starts[place + 1]:
            raise ValueError("the starts in a batch of series do not ascend")
    return 0
