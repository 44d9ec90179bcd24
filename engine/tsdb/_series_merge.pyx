"""The compiled merge of series behind the door ``engine.tsdb.series_merge``."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memmove

from engine.profiles._byte_buffers cimport (
    Buffer, Cursor, buffer_free, buffer_reserve, be32, cursor_over, left, put_bytes, put_u32_be, put_u64,
    put_uvarint, read_uvarint,
)
from engine.profiles._checksum_kernels cimport crc32c_of
from engine.tsdb._sample_merge cimport Samples, merge_two
from engine.tsdb._xor cimport (
    CHUNK_BYTES_EXTRA, SAMPLE_BYTES_MAX, XorFault, decode_samples, encode_samples, xor_count,
)

import numpy as np

from engine.profiles.errors import (
    BadObject, BadReference, ChecksumMismatch, LimitExceeded, MergeRefused, Truncated, UnknownFormat,
)
from engine.tsdb.chunk_files import chunk_place, file_name
from engine.tsdb.errors import Inconsistent, OutOfOrder
from engine.tsdb.merge_model import MergeCounts, StoredChunk, Winner
from engine.tsdb.merge_turns import MergedSeries, Turn
from engine.tsdb.model import Chunk
from engine.tsdb.overlaps import PlacedChunk
from engine.tsdb.series_batch import SeriesBatch

cdef enum:
    BAD = 0
    TRUNCATED = 1
    LIMIT = 2  # up to here as in _xor.pyx
    REFERENCE = 3
    CHECKSUM = 4
    FORMAT = 5
    ORDER = 6
    CONTRADICTION = 7

    MERGED = 0
    FAULTY = 1
    RARE = 2
    REFUSED = 8  # for the blocks together, none is to blame

    CHUNK_BYTES = 64  # what is held of a chunk beside its record
    SERIES_MOST = 4096
    CHUNK_BYTES_MAX = 64 << 20
    HEADER_BYTES = 8
    CRC_BYTES = 4
    SHARE_BYTES = 10  # of a record beside its data, where files are cut
    ENCODING_XOR = 1
    ENCODING_XOR2 = 4
    ENCODING_14_BITS = 5  # this one and the next have counts of 14 bits
    ENCODING_LAST = 6

cdef uint64_t OVERLAY = 0xFFFFFFFFULL
cdef tuple ERRORS = (
    BadObject, Truncated, LimitExceeded, BadReference, ChecksumMismatch, UnknownFormat, OutOfOrder, Inconsistent,
)

ctypedef struct Source:
    const uint8_t** files
    size_t* file_sizes
    size_t file_count
    const uint8_t* overlay
    size_t overlay_size
    size_t series
    size_t next_series  # the current one is before it
    bint has_ended
    const int64_t* label_starts
    const uint32_t* label_refs
    const int64_t* chunk_starts
    const int64_t* min_times
    const int64_t* max_times
    const uint64_t* chunk_refs

ctypedef struct Piece:
    const uint8_t* sealed  # encoding and data, then their checksum
    size_t size  # of encoding and data
    size_t record_bytes
    int64_t min_time
    int64_t max_time
    uint64_t ref
    uint32_t source
    uint32_t samples

ctypedef struct OutChunk:
    const uint8_t* sealed  # NULL: at ``offset`` of what was encoded, without a checksum
    size_t offset
    size_t size
    int64_t min_time
    int64_t max_time
    uint32_t samples

ctypedef struct Fault:
    int kind
    uint32_t source
    uint64_t ref
    size_t offset  # beyond that of the reference
    const char* reason

ctypedef struct Counts:
    uint64_t series_read
    uint64_t chunks_read
    uint64_t samples_read
    uint64_t bytes_read
    uint64_t series_written
    uint64_t chunks_written
    uint64_t samples_written
    uint64_t float_samples_written


cdef inline int _fail(Fault* fault, int kind, uint32_t source, uint64_t ref, size_t offset,
                      const char* reason) noexcept nogil:
    fault.kind = kind
    fault.source = source
    fault.ref = ref
    fault.offset = offset
    fault.reason = reason
    return FAULTY


cdef inline uint32_t _sample_count(const uint8_t* sealed) noexcept nogil:
    cdef uint32_t count = (<uint32_t>sealed[1] << 8) | sealed[2]
    return count & 0x3FFF if sealed[0] >= ENCODING_14_BITS else count


cdef inline bint _is_float(uint8_t encoding) noexcept nogil:
    return encoding == ENCODING_XOR or encoding == ENCODING_XOR2


cdef inline bint _is_before(const Source* one, const Source* other) noexcept nogil:
    """Say whether the labels of the current series come strictly before another's; what is longer comes after."""
    cdef size_t first = one.next_series - 1, second = other.next_series - 1
    cdef size_t size = 2 * <size_t>(one.label_starts[first + 1] - one.label_starts[first])
    cdef size_t other_size = 2 * <size_t>(other.label_starts[second + 1] - other.label_starts[second])
    cdef const uint32_t* refs = one.label_refs + 2 * one.label_starts[first]
    cdef const uint32_t* other_refs = other.label_refs + 2 * other.label_starts[second]
    cdef size_t position
    for position in range(min(size, other_size)):
        if refs[position] != other_refs[position]:
            return refs[position] < other_refs[position]
    return size < other_size


cdef inline bint _is_earlier(const Piece* one, const Piece* other) noexcept nogil:
    return one.min_time < other.min_time or (one.min_time == other.min_time and one.max_time < other.max_time)


cdef inline bint _is_same(const Piece* one, const Piece* other) noexcept nogil:
    return (one.min_time == other.min_time and one.max_time == other.max_time and one.size == other.size
            and memcmp(one.sealed, other.sealed, one.size) == 0)


cdef int _read_piece(const Source* source, Piece* piece, Fault* fault) noexcept nogil:
    """Find the record of a piece, whose reference, source and times are set, and check it."""
    cdef uint64_t number = piece.ref >> 32, size
    cdef size_t offset = <size_t>(piece.ref & 0xFFFFFFFFu), start
    cdef Cursor cursor
    if number == OVERLAY:
        cursor = cursor_over(source.overlay, source.overlay_size)
    elif number < source.file_count:
        cursor = cursor_over(source.files[number], source.file_sizes[number])
    else:
        return _fail(fault, REFERENCE, piece.source, piece.ref, 0, b"the block has no such chunk file")
    if offset < HEADER_BYTES or offset >= cursor.size:
        return _fail(fault, REFERENCE, piece.source, piece.ref, 0, b"no record can be there")
    cursor.at = offset
    size = read_uvarint(&cursor)
    if cursor.failed:
        return _fail(fault, BAD if cursor.at < cursor.size else TRUNCATED, piece.source, piece.ref, 0,
                     b"the length of a chunk is not one")
    if size > CHUNK_BYTES_MAX:
        return _fail(fault, LIMIT, piece.source, piece.ref, 0, b"a chunk longer than any that is read")
    if size + 1 + CRC_BYTES > left(&cursor):
        return _fail(fault, TRUNCATED, piece.source, piece.ref, 0, b"the file ends inside a record")
    start = cursor.at - offset
    piece.sealed = cursor.data + cursor.at
    piece.size = <size_t>size + 1
    piece.record_bytes = start + piece.size + CRC_BYTES
    if crc32c_of(piece.sealed, piece.size) != be32(piece.sealed + piece.size):
        return _fail(fault, CHECKSUM, piece.source, piece.ref, start, b"the stored checksum is not that of the bytes")
    if not 0 < piece.sealed[0] <= ENCODING_LAST:
        return _fail(fault, FORMAT, piece.source, piece.ref, start, b"an unknown encoding of a chunk")
    piece.samples = _sample_count(piece.sealed) if size >= 2 else 0
    if piece.samples == 0:
        return _fail(fault, BAD, piece.source, piece.ref, start, b"a chunk without samples")
    return MERGED


cdef int _make_room(Samples* samples, size_t count) except -1 nogil:
    cdef size_t room
    cdef int64_t* times
    cdef uint64_t* values
    if count <= samples.room:
        return 0
    room = max(count, 2 * samples.room)
    times = <int64_t*>realloc(samples.times, 8 * room)
    if times != NULL:
        samples.times = times
    values = <uint64_t*>realloc(samples.values, 8 * room)
    if values != NULL:
        samples.values = values
    if times == NULL or values == NULL:
        with gil:
            raise MemoryError()
    samples.room = room
    return 0


cdef int _decode(const Piece* piece, Samples* samples, Fault* fault) except -1 nogil:
    """Append the samples of a float chunk, which must be what the index says."""
    cdef XorFault found
    cdef const uint8_t* data = piece.sealed + 1
    cdef int64_t count = xor_count(data, piece.size - 1, &found)
    cdef int64_t* times
    cdef int64_t position
    cdef bint ascends = True
    if count < 0:
        return _fail(fault, found.kind, piece.source, piece.ref, found.offset, found.reason)
    _make_room(samples, samples.count + <size_t>count)
    times = samples.times + samples.count
    if decode_samples(data, piece.size - 1, times, samples.values + samples.count, &found) < 0:
        return _fail(fault, found.kind, piece.source, piece.ref, found.offset, found.reason)
    for position in range(1, count):
        ascends &= times[position] > times[position - 1]
    if not ascends:
        return _fail(fault, ORDER, piece.source, piece.ref, 0, b"the samples of a chunk do not ascend in time")
    if times[0] != piece.min_time or times[count - 1] != piece.max_time:
        return _fail(fault, CONTRADICTION, piece.source, piece.ref, 0, b"a chunk has other times than the index says")
    samples.count += <size_t>count
    return MERGED


@cython.nonecheck(False)  # its methods run without the interpreter lock, where Cython cannot raise the error
cdef class SeriesMerge:
    """Merges series of several sources. ``run`` says what is needed next, ``take`` gives what was merged.

    ``sources`` are the blocks' names and the bytes of their chunk files, in the order of the merge.
    """

    cdef readonly object counts
    cdef Source* _sources
    cdef size_t _source_count
    cdef list _names
    cdef list _files
    cdef list _loaded
    cdef bint _is_ours
    cdef bint _is_waiting  # for the chunks of a series that is rare
    cdef size_t _samples_per_chunk
    cdef uint64_t _file_bytes
    cdef uint64_t _record_bytes_max  # of the chunks of a series
    cdef size_t _window_samples  # of overlapping chunks, decoded together
    cdef uint64_t _file_count
    cdef uint64_t _position
    cdef uint32_t* _heap
    cdef size_t _heap_size
    cdef uint32_t* _taken
    cdef size_t _taken_count
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
    cdef Buffer _records
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
        self._sources = <Source*>_zeroed(self._source_count, sizeof(Source))
        self._heap = <uint32_t*>_zeroed(self._source_count, sizeof(uint32_t))
        self._taken = <uint32_t*>_zeroed(self._source_count, sizeof(uint32_t))
        self._piece_starts = <size_t*>_zeroed(self._source_count + 1, sizeof(size_t))
        self._piece_next = <size_t*>_zeroed(self._source_count, sizeof(size_t))
        for number, files in enumerate(self._files):
            self._taken[number] = <uint32_t>number
            self._sources[number].files = <const uint8_t**>_zeroed(len(files), sizeof(void*))
            self._sources[number].file_sizes = <size_t*>_zeroed(len(files), sizeof(size_t))
            self._sources[number].file_count = len(files)
            for place, file in enumerate(files):
                data = file
                self._sources[number].files[place] = &data[0] if data.shape[0] else NULL
                self._sources[number].file_sizes[place] = data.shape[0]
        self._taken_count = self._source_count
        self._clear()

    def __dealloc__(self):
        cdef size_t number
        if self._sources != NULL:
            for number in range(self._source_count):
                free(self._sources[number].files)
                free(self._sources[number].file_sizes)
        free(self._sources)
        free(self._heap)
        free(self._taken)
        free(self._piece_starts)
        free(self._piece_next)
        _free_samples(&self._samples)
        _free_samples(&self._other)
        _free_samples(&self._merged)
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
        buffer_free(&self._records)
        buffer_free(&self._file_starts)

    def load(self, size_t source, batch, bytes overlay):
        """Give a source's next series, which have chunks; those of file OVERLAY_FILE are records in ``overlay``."""
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
        into = &self._sources[source]
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
        """Say that a source has no more series."""
        if source >= self._source_count:
            raise ValueError("there is no such source")
        self._sources[source].has_ended = True

    def run(self, size_t most_bytes):
        """Merge on; with ``Turn.NEEDS`` comes the source, with ``FULL`` there are about ``most_bytes`` of records."""
        cdef int64_t dry = -1
        cdef int status = MERGED
        cdef bint is_full = False, is_done = False
        if self._is_waiting:
            raise ValueError("the chunks of a rare series were not put")
        try:
            with nogil:
                while status == MERGED:
                    is_full = self._records.size >= most_bytes or self._series >= SERIES_MOST
                    if is_full:
                        break
                    dry = self._dry_source()
                    if dry >= 0:
                        break
                    self._take_next()
                    is_done = self._taken_count == 0
                    if is_done:
                        break
                    status = self._merge_series()
        finally:
            self._copy_counts()
        if status == FAULTY:
            self._raise()
        if status == RARE:
            self._is_waiting = True
            return Turn.PLAIN, -1
        if is_full:
            return Turn.FULL, -1
        return (Turn.DONE, -1) if is_done else (Turn.NEEDS, dry)

    def plain(self):
        """Return the chunks, by source, of the series that the caller is to merge, and to ``put``."""
        cdef const Piece* pieces = <const Piece*>self._pieces.data
        cdef size_t taken, place
        if not self._is_waiting:
            raise ValueError("no series is rare")
        columns = []
        for taken in range(self._taken_count):
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
        """Append the chunks of the current series."""
        cdef OutChunk out
        cdef bytes sealed
        if not self._is_waiting:
            raise ValueError("no series is rare")
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
        """Return what was merged since the last time."""
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
        records = (<const char*>self._records.data)[:self._records.size]
        merged = MergedSeries(batch, records, _array(&self._file_starts, np.uint64).tolist())
        self._clear()
        return merged

    cdef int _clear(self) except -1:
        self._series = 0
        self._label_starts.size = self._label_refs.size = self._chunk_starts.size = 0
        self._min_times.size = self._max_times.size = self._chunk_refs.size = 0
        self._records.size = self._file_starts.size = 0
        put_u64(&self._label_starts, 0)
        put_u64(&self._chunk_starts, 0)
        return 0

    cdef int64_t _dry_source(self) noexcept nogil:
        """Return a source whose next series is wanted and not loaded, -1 if there is none."""
        cdef size_t number, taken
        cdef int64_t dry = -1
        cdef const Source* source
        for taken in range(self._taken_count):
            number = self._taken[taken]
            source = &self._sources[number]
            if source.next_series >= source.series and not source.has_ended and (dry < 0 or <int64_t>number < dry):
                dry = <int64_t>number
        return dry

    cdef void _take_next(self) noexcept nogil:
        """Take the sources with the next series off the heap, after putting back those of the series before."""
        cdef size_t taken
        cdef uint32_t number
        for taken in range(self._taken_count):
            number = self._taken[taken]
            if self._sources[number].next_series < self._sources[number].series:
                self._sources[number].next_series += 1
                self._push(number)
        self._taken_count = 0
        while self._heap_size and (
                self._taken_count == 0
                or not _is_before(&self._sources[self._taken[0]], &self._sources[self._heap[0]])):
            self._taken[self._taken_count] = self._pop()
            self._taken_count += 1

    cdef void _push(self, uint32_t number) noexcept nogil:
        cdef size_t place = self._heap_size, parent
        self._heap[place] = number
        self._heap_size += 1
        while place:
            parent = (place - 1) // 2
            if not _is_before(&self._sources[number], &self._sources[self._heap[parent]]):
                break
            self._heap[place] = self._heap[parent]
            self._heap[parent] = number
            place = parent

    cdef uint32_t _pop(self) noexcept nogil:
        """Take the first; of equal ones, the order is that of ``engine.tsdb.merge_heap``."""
        cdef size_t last = self._heap_size - 1, place = 0, child
        cdef uint32_t first = self._heap[0], sifted = self._heap[last]
        self._heap[0] = sifted
        while 2 * place + 1 < last:
            child = 2 * place + 1
            if child + 1 < last and _is_before(&self._sources[self._heap[child + 1]], &self._sources[self._heap[child]]):
                child += 1
            if not _is_before(&self._sources[self._heap[child]], &self._sources[sifted]):
                break
            self._heap[place] = self._heap[child]
            self._heap[child] = sifted
            place = child
        self._heap_size = last
        return first

    cdef int _merge_series(self) except -1 nogil:
        """Merge the chunks of the series that was taken, and write it unless it is rare."""
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
            for taken in range(self._taken_count):
                if self._piece_next[taken] < self._piece_starts[taken + 1] and (
                        found == NULL or _is_earlier(&pieces[self._piece_next[taken]], found)):
                    found = &pieces[self._piece_next[taken]]
                    source = taken
            if found == NULL:
                break
            self._piece_next[source] += 1
            if last != NULL and found.min_time <= end:
                if _is_same(found, last):
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
        cdef size_t taken, place, series, first, count, start
        cdef uint64_t held = 0, own
        cdef uint32_t number
        cdef Source* source
        cdef Piece* piece
        self._pieces.size = 0
        for taken in range(self._taken_count):
            number = self._taken[taken]
            source = &self._sources[number]
            series = source.next_series - 1
            first = <size_t>source.chunk_starts[series]
            count = <size_t>(source.chunk_starts[series + 1] - source.chunk_starts[series])
            start = self._pieces.size // sizeof(Piece)
            self._piece_starts[taken] = self._piece_next[taken] = start
            buffer_reserve(&self._pieces, count * sizeof(Piece))
            self._pieces.size += count * sizeof(Piece)
            self._piece_starts[taken + 1] = start + count
            own = 0
            for place in range(count):
                piece = <Piece*>self._pieces.data + start + place
                piece.source = number
                piece.min_time = source.min_times[first + place]
                piece.max_time = source.max_times[first + place]
                piece.ref = source.chunk_refs[first + place]
                if _read_piece(source, piece, &self._fault) != MERGED:
                    return FAULTY
                self._counts.samples_read += piece.samples
                self._counts.bytes_read += piece.record_bytes
                own += CHUNK_BYTES + piece.record_bytes
                if own > self._record_bytes_max:
                    return _fail(&self._fault, LIMIT, number, piece.ref, 0,
                                 b"the chunks of a series take more than a merge holds of one")
            self._counts.series_read += 1
            self._counts.chunks_read += count
            held += own
            if held > self._record_bytes_max:
                return _fail(&self._fault, REFUSED, number, source.chunk_refs[first], 0,
                             b"the chunks of a series in all blocks take more than the budget allows")
        return MERGED

    cdef int _merge_group(self) except -1 nogil:
        """Turn the chunks of a group that overlap into new ones; a single one stays as it is.

        They come by their first times. However long the chain is, what is decoded of it lies in a window of some chunks:
        no later one says more of the times before its own first.
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
                return _fail(&self._fault, REFUSED, group[first].source, group[first].ref, 0,
                             b"samples that overlap here take more than the budget of the merge allows")
            first = place
        return MERGED

    cdef int _merge_window(self, const Piece** pieces, size_t count) except -1 nogil:
        """Merge the samples of some chunks into those that are left of the ones before."""
        cdef size_t place, taken
        cdef bint is_first = self._samples.count == 0
        cdef Samples swapped
        cdef int status
        for taken in range(self._taken_count):
            self._other.count = 0
            for place in range(count):
                if pieces[place].source == self._taken[taken]:
                    status = _decode(pieces[place], &self._samples if is_first else &self._other, &self._fault)
                    if status != MERGED:
                        return status
            if is_first:
                is_first = self._samples.count == 0
            elif self._other.count:
                _make_room(&self._merged, self._samples.count + self._other.count)
                if not merge_two(&self._samples, &self._other, &self._merged, self._is_ours):
                    return RARE
                swapped = self._samples
                self._samples = self._merged
                self._merged = swapped
        return MERGED

    cdef size_t _whole_runs_before(self, int64_t time) noexcept nogil:
        """Return how many samples the whole runs before a time have."""
        cdef size_t low = 0, high = self._samples.count, middle
        while low < high:
            middle = (low + high) // 2
            if self._samples.times[middle] < time:
                low = middle + 1
            else:
                high = middle
        return low - low % self._samples_per_chunk

    cdef int _cut(self, size_t most) except -1 nogil:
        """Encode the first of the merged samples, so many of them, in runs, and keep the others."""
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
        """Append the series that was taken, with the chunks in ``_out``."""
        cdef const Source* source = &self._sources[self._taken[0]]
        cdef size_t series = source.next_series - 1
        cdef int64_t first = source.label_starts[series], last = source.label_starts[series + 1]
        cdef const OutChunk* chunks = <const OutChunk*>self._out.data
        cdef size_t count = self._out.size // sizeof(OutChunk), place
        cdef uint64_t begin = self._position, estimate = 0
        cdef bint is_cut = False, starts_file
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
                put_u64(&self._file_starts, self._records.size)
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

    cdef int _write_chunk(self, const OutChunk* chunk) except -1 nogil:
        cdef size_t start = self._records.size
        cdef const uint8_t* sealed = chunk.sealed
        put_uvarint(&self._records, chunk.size - 1)
        if sealed != NULL:
            put_bytes(&self._records, sealed, chunk.size + CRC_BYTES)
        else:
            sealed = self._encoded.data + chunk.offset
            put_bytes(&self._records, sealed, chunk.size)
            put_u32_be(&self._records, crc32c_of(sealed, chunk.size))
        put_u64(&self._min_times, <uint64_t>chunk.min_time)
        put_u64(&self._max_times, <uint64_t>chunk.max_time)
        put_u64(&self._chunk_refs, (self._file_count - 1) << 32 | self._position)
        self._position += self._records.size - start
        self._counts.samples_written += chunk.samples
        if _is_float(sealed[0]):
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


cdef void _free_samples(Samples* samples) noexcept:
    free(samples.times)
    free(samples.values)


cdef object _array(const Buffer* buffer, kind):
    return np.frombuffer((<const char*>buffer.data)[:buffer.size], kind)


cdef int _check_starts(const int64_t[::1] starts, Py_ssize_t count, Py_ssize_t size) except -1:
    """Refuse a batch whose arrays do not belong together: what follows trusts them."""
    cdef Py_ssize_t place
    if starts.shape[0] != count + 1 or starts[0] < 0 or starts[count] > size:
        raise ValueError("the arrays of a batch of series are not equally long")
    for place in range(count):
        if starts[place] > starts[place + 1]:
            raise ValueError("the starts in a batch of series do not ascend")
    return 0
