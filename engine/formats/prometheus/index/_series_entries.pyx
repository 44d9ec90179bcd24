"""The compiled reader and writer of series entries; see ``engine.formats.prometheus.index.series_entries``."""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from engine.core._byte_buffers cimport (
    Buffer, Cursor, be32, buffer_free, buffer_reserve, cursor_over, left, put_bytes, put_u32, put_u64,
    put_u32_be, put_uvarint, put_zeros, read_uvarint, take, zigzag_decode, zigzag_encode,
)
from engine.core._checksum_kernels cimport crc32c_of

import numpy as np

from engine.core.errors import BadObject, BadReference, ChecksumMismatch, LimitExceeded, Truncated
from engine.formats.prometheus.errors import OutOfOrder
from engine.formats.prometheus.index.index_layout import SECTION
from engine.formats.prometheus.index.series_batch import SeriesBatch

cdef enum:
    BAD = 0
    CHECKSUM = 1
    TRUNCATED = 2
    REFERENCE = 3
    LIMIT = 4
    ORDER = 5
    ALIGNMENT = 16
    CRC_BYTES = 4
    VARINT_BYTES_MAX = 10
    SERIES_BYTES_MAX = 16 << 20
    BATCH_BYTES_MAX = 4 << 20

cdef tuple ERRORS = (BadObject, ChecksumMismatch, Truncated, BadReference, LimitExceeded, OutOfOrder)

ctypedef struct Fault:
    int kind
    size_t offset
    const char* reason

ctypedef struct Limits:
    uint64_t symbols
    uint64_t first_name

ctypedef struct Arrays:
    Buffer ids
    Buffer label_starts
    Buffer label_refs
    Buffer chunk_starts
    Buffer min_times
    Buffer max_times
    Buffer chunk_refs


cdef inline int _fail(Fault* fault, int kind, size_t offset, const char* reason) noexcept nogil:
    fault.kind = kind
    fault.offset = offset
    fault.reason = reason
    return 1


cdef inline int _varint(Cursor* cursor, uint64_t* value, Fault* fault) noexcept nogil:
    """Read a varint; most have one or two bytes."""
    cdef const uint8_t* at = cursor.data + cursor.at
    if left(cursor) >= 2:
        if at[0] < 0x80:
            value[0] = at[0]
            cursor.at += 1
            return 0
        if at[1] < 0x80:
            value[0] = (at[0] & 0x7F) | <uint64_t>at[1] << 7
            cursor.at += 2
            return 0
    return _long_varint(cursor, value, fault)


cdef int _long_varint(Cursor* cursor, uint64_t* value, Fault* fault) noexcept nogil:
    cdef size_t start = cursor.at
    value[0] = read_uvarint(cursor)
    if not cursor.failed:
        return 0
    if cursor.size - start >= VARINT_BYTES_MAX:
        return _fail(fault, BAD, start, b"a varint is longer than 64 bits")
    return _fail(fault, TRUNCATED, start, b"the entry ends inside a varint")


cdef bint _follows(const uint32_t* before, size_t before_count, const uint32_t* refs, size_t count) noexcept nogil:
    """Return whether a label set sorts after another; a proper prefix sorts first."""
    cdef size_t position
    for position in range(min(before_count, count)):
        if refs[position] != before[position]:
            return refs[position] > before[position]
    return count > before_count


cdef int _open_entry(Cursor* cursor, Cursor* entry, size_t* place, Fault* fault) noexcept nogil:
    """Skip the padding before an entry and verify its checksum; ``place`` is its position."""
    cdef size_t padding = (ALIGNMENT - cursor.at % ALIGNMENT) % ALIGNMENT
    cdef size_t start = cursor.at, position
    cdef uint64_t size = 0
    cdef const uint8_t* body
    cdef const uint8_t* stored
    if padding > left(cursor):
        padding = left(cursor)
    for position in range(padding):
        if cursor.data[start + position]:
            return _fail(fault, BAD, start, b"the padding is not zero")
    cursor.at += padding
    place[0] = cursor.at
    if _varint(cursor, &size, fault):
        return 1
    if size > SERIES_BYTES_MAX:
        return _fail(fault, LIMIT, place[0], b"the series exceeds the maximum size")
    start = cursor.at
    body = take(cursor, size)
    stored = take(cursor, CRC_BYTES)
    if cursor.failed:
        return _fail(fault, TRUNCATED, start, b"the series section ends inside an entry")
    if crc32c_of(body, size) != be32(stored):
        return _fail(fault, CHECKSUM, start, b"the stored checksum does not match the entry")
    entry[0] = cursor_over(cursor.data, start + size)
    entry.at = start
    return 0


cdef int _read_labels(Cursor* entry, const Limits* limits, Arrays* arrays, Fault* fault) except -1 nogil:
    cdef uint64_t count = 0, ref = 0, position, name = 0
    cdef size_t at
    cdef uint32_t* refs
    if _varint(entry, &count, fault):
        return 1
    if count > left(entry) // 2:
        return _fail(fault, LIMIT, entry.at, b"the labels do not fit in the entry")
    buffer_reserve(&arrays.label_refs, 8 * count)
    refs = <uint32_t*>(arrays.label_refs.data + arrays.label_refs.size)
    for position in range(2 * count):
        at = entry.at
        if _varint(entry, &ref, fault):
            return 1
        if ref >= limits.symbols or (position % 2 == 0 and ref < limits.first_name):
            return _fail(fault, REFERENCE, at, b"a label refers to a symbol that does not exist or is empty")
        if position % 2 == 0:
            if position and ref <= name:
                return _fail(fault, ORDER, at, b"the labels of a series do not ascend")
            name = ref
        refs[position] = <uint32_t>ref
    arrays.label_refs.size += 8 * count
    put_u64(&arrays.label_starts, arrays.label_refs.size // 8)
    return 0


cdef int _read_chunks(Cursor* entry, Arrays* arrays, Fault* fault) except -1 nogil:
    cdef uint64_t count = 0, number = 0, position, ref = 0, width = 0
    cdef int64_t min_time, max_time = 0, change
    cdef bint is_time_beyond, is_ref_beyond
    cdef size_t at
    cdef int64_t* min_times
    cdef int64_t* max_times
    cdef uint64_t* refs
    if _varint(entry, &count, fault):
        return 1
    if count > left(entry) // 3:
        return _fail(fault, LIMIT, entry.at, b"the chunks do not fit in the entry")
    buffer_reserve(&arrays.min_times, 8 * count)
    buffer_reserve(&arrays.max_times, 8 * count)
    buffer_reserve(&arrays.chunk_refs, 8 * count)
    min_times = <int64_t*>(arrays.min_times.data + arrays.min_times.size)
    max_times = <int64_t*>(arrays.max_times.data + arrays.max_times.size)
    refs = <uint64_t*>(arrays.chunk_refs.data + arrays.chunk_refs.size)
    for position in range(count):
        at = entry.at
        is_time_beyond = is_ref_beyond = False
        if _varint(entry, &number, fault):
            return 1
        if position == 0:
            min_time = zigzag_decode(number)
        else:
            # For a chunk that starts earlier, the unsigned gap has wrapped around.
            if number == 0 or number > <uint64_t>INT64_MAX:
                return _fail(fault, ORDER, at, b"a chunk does not start after the end of the previous one")
            is_time_beyond = number > <uint64_t>INT64_MAX - <uint64_t>max_time
            min_time = <int64_t>(<uint64_t>max_time + number)
        if _varint(entry, &width, fault):
            return 1
        is_time_beyond = is_time_beyond or width > <uint64_t>INT64_MAX - <uint64_t>min_time
        max_time = <int64_t>(<uint64_t>min_time + width)
        if _varint(entry, &number, fault):
            return 1
        if position == 0:
            ref = number
        else:
            change = zigzag_decode(number)
            is_ref_beyond = (ref + <uint64_t>change < ref) != (change < 0)
            ref += <uint64_t>change
        if is_time_beyond:
            return _fail(fault, BAD, at, b"the times of a chunk exceed 64 bits")
        if is_ref_beyond:
            return _fail(fault, REFERENCE, at, b"the reference of a chunk exceeds 64 bits")
        min_times[position], max_times[position], refs[position] = min_time, max_time, ref
    arrays.min_times.size += 8 * count
    arrays.max_times.size += 8 * count
    arrays.chunk_refs.size += 8 * count
    put_u64(&arrays.chunk_starts, arrays.chunk_refs.size // 8)
    return 0


cdef int _read_all(Cursor* cursor, const Limits* limits, const uint32_t* after, size_t after_count, bint has_after,
                   size_t most, Arrays* arrays, Fault* fault) except -1 nogil:
    """Read entries into the arrays; return 1 and a fault if one is invalid."""
    cdef Cursor entry
    cdef size_t place = 0, done = 0, start
    cdef size_t before_start = 0, first = cursor.at
    put_u64(&arrays.label_starts, 0)
    put_u64(&arrays.chunk_starts, 0)
    while left(cursor) and done < most and cursor.at - first < BATCH_BYTES_MAX:
        if _open_entry(cursor, &entry, &place, fault):
            return 1
        start = arrays.label_refs.size
        if _read_labels(&entry, limits, arrays, fault):
            return 1
        if done:  # the previous series is in the same array
            after = <uint32_t*>(arrays.label_refs.data + before_start)
            after_count = (start - before_start) // 4
        if (done or has_after) and not _follows(
                after, after_count, <uint32_t*>(arrays.label_refs.data + start), (arrays.label_refs.size - start) // 4):
            return _fail(fault, ORDER, place, b"the series does not sort after the previous one")
        before_start = start
        put_u32(&arrays.ids, <uint32_t>(place // ALIGNMENT))
        if _read_chunks(&entry, arrays, fault):
            return 1
        if left(&entry):
            return _fail(fault, BAD, entry.at, b"unexpected bytes after the chunks of a series")
        done += 1
    return 0


def decode_series(const uint8_t[::1] data, size_t position, size_t end, uint64_t symbols, uint64_t first_name, after,
                  size_t most):
    """Return up to ``most`` entries from ``position``; checksums, references and all orders are verified."""
    cdef Arrays arrays
    cdef Fault fault
    cdef Limits limits = Limits(symbols, first_name)
    cdef uint32_t[::1] before = np.array(after or (0,), np.uint32)
    cdef size_t before_count = len(after) if after is not None else 0
    cdef bint has_after = after is not None
    cdef Cursor cursor
    cdef int failed
    if not position <= end <= <size_t>data.shape[0]:
        raise Truncated(SECTION, position, f"bytes {position} to {end} are outside of {data.shape[0]} bytes")
    cursor = cursor_over(&data[0] if data.shape[0] else NULL, end)
    cursor.at = position
    memset(&arrays, 0, sizeof(Arrays))
    try:
        with nogil:
            failed = _read_all(&cursor, &limits, &before[0], before_count, has_after, most, &arrays, &fault)
        if failed:
            raise ERRORS[fault.kind](SECTION, fault.offset, fault.reason.decode())
        return SeriesBatch(
            cursor.at,
            _array(&arrays.ids, np.uint32),
            _array(&arrays.label_starts, np.int64),
            _array(&arrays.label_refs, np.uint32),
            _array(&arrays.chunk_starts, np.int64),
            _array(&arrays.min_times, np.int64),
            _array(&arrays.max_times, np.int64),
            _array(&arrays.chunk_refs, np.uint64),
        )
    finally:
        _free(&arrays)


cdef object _array(const Buffer* buffer, kind):
    return np.frombuffer((<char*>buffer.data)[:buffer.size], kind)


cdef void _free(Arrays* arrays) noexcept:
    buffer_free(&arrays.ids)
    buffer_free(&arrays.label_starts)
    buffer_free(&arrays.label_refs)
    buffer_free(&arrays.chunk_starts)
    buffer_free(&arrays.min_times)
    buffer_free(&arrays.max_times)
    buffer_free(&arrays.chunk_refs)


def encode_series(batch, size_t position, after):
    """Return the padded entries of a batch for ``position`` of the file, and their new ids.

    Raises OutOfOrder if labels, series or chunks do not ascend.
    """
    cdef const int64_t[::1] label_starts = batch.label_starts
    cdef const int64_t[::1] chunk_starts = batch.chunk_starts
    cdef const uint32_t[::1] label_refs = batch.label_refs
    cdef const int64_t[::1] min_times = batch.min_times
    cdef const int64_t[::1] max_times = batch.max_times
    cdef const uint64_t[::1] chunk_refs = batch.chunk_refs
    cdef uint32_t[::1] before = np.array(after or (0,), np.uint32)
    cdef Py_ssize_t count = len(batch.ids)
    cdef Fault fault
    cdef Buffer out = Buffer(NULL, 0, 0)
    cdef Buffer body = Buffer(NULL, 0, 0)
    cdef Py_ssize_t place
    cdef int failed = 0
    cdef size_t labels, chunks, padding
    cdef const uint32_t* refs
    cdef const uint32_t* refs_before = &before[0]
    cdef size_t before_count = len(after) if after is not None else 0
    cdef bint has_before = after is not None
    ids_array = np.empty(count, np.uint32)
    cdef uint32_t[::1] ids = ids_array
    _check_starts(label_starts, count, label_refs.shape[0] // 2)
    _check_starts(chunk_starts, count, min(min_times.shape[0], max_times.shape[0], chunk_refs.shape[0]))
    try:
        with nogil:
            for place in range(count):
                labels = label_starts[place + 1] - label_starts[place]
                chunks = chunk_starts[place + 1] - chunk_starts[place]
                refs = &label_refs[2 * label_starts[place]] if labels else refs_before
                body.size = 0
                failed = _put_labels(&body, refs, labels, position + out.size, &fault)
                if failed:
                    break
                if has_before and not _follows(refs_before, before_count, refs, 2 * labels):
                    failed = _fail(&fault, ORDER, position + out.size,
                                   b"the series does not sort after the previous one")
                    break
                refs_before, before_count, has_before = refs, 2 * labels, True
                padding = (ALIGNMENT - (position + out.size) % ALIGNMENT) % ALIGNMENT
                if padding:
                    put_zeros(&out, padding)
                put_uvarint(&body, chunks)
                if chunks:
                    failed = _put_chunks(&body, &min_times[chunk_starts[place]], &max_times[chunk_starts[place]],
                                         &chunk_refs[chunk_starts[place]], chunks, position + out.size, &fault)
                    if failed:
                        break
                if body.size > SERIES_BYTES_MAX:
                    failed = _fail(&fault, LIMIT, position + out.size, b"the series exceeds the maximum size")
                    break
                ids[place] = <uint32_t>((position + out.size) // ALIGNMENT)
                put_uvarint(&out, body.size)
                put_bytes(&out, body.data, body.size)
                put_u32_be(&out, crc32c_of(body.data, body.size))
        if failed:
            raise ERRORS[fault.kind](SECTION, fault.offset, fault.reason.decode())
        return (<char*>out.data)[:out.size], ids_array
    finally:
        buffer_free(&out)
        buffer_free(&body)


cdef int _check_starts(const int64_t[::1] starts, Py_ssize_t count, Py_ssize_t size) except -1:
    """Raise ValueError if the arrays of a batch are inconsistent; the code below relies on them."""
    cdef Py_ssize_t place
    if starts.shape[0] != count + 1 or starts[0] < 0 or starts[count] > size:
        raise ValueError("the arrays of a batch of series differ in length")
    for place in range(count):
        if starts[place] > starts[place + 1]:
            raise ValueError("the starts in a batch of series do not ascend")
    return 0


cdef int _put_labels(Buffer* body, const uint32_t* refs, size_t labels, size_t at, Fault* fault) except -1 nogil:
    cdef size_t position
    put_uvarint(body, labels)
    for position in range(2 * labels):
        if position >= 2 and position % 2 == 0 and refs[position] <= refs[position - 2]:
            return _fail(fault, ORDER, at, b"the labels of a series do not ascend")
        put_uvarint(body, refs[position])
    return 0


cdef int _put_chunks(Buffer* body, const int64_t* min_times, const int64_t* max_times, const uint64_t* refs,
                     size_t chunks, size_t at, Fault* fault) except -1 nogil:
    cdef size_t position
    cdef uint64_t gap
    for position in range(chunks):
        if max_times[position] < min_times[position] or (position and min_times[position] <= max_times[position - 1]):
            return _fail(fault, ORDER, at, b"the chunks of a series do not ascend")
        if position:
            gap = <uint64_t>min_times[position] - <uint64_t>max_times[position - 1]
            if gap > <uint64_t>INT64_MAX:  # readers would treat it as wrapped around
                return _fail(fault, ORDER, at, b"the chunks of a series do not ascend")
            put_uvarint(body, gap)
        else:
            put_uvarint(body, zigzag_encode(min_times[0]))
        put_uvarint(body, <uint64_t>max_times[position] - <uint64_t>min_times[position])
        if position:
            put_uvarint(body, zigzag_encode(<int64_t>(refs[position] - refs[position - 1])))
        else:
            put_uvarint(body, refs[0])
    return 0
