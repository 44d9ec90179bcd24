"""C arrays of the rows of a profile table: append rows, convert from and to Arrow.

All arrays are dense: a null has the value 0 and a validity byte of 0. Sample labels are not supported: they are empty
in practice, and a table with labels is merged by the pure-Python implementation.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

import numpy as np
import pyarrow as pa

from engine.core._byte_buffers cimport Buffer, buffer_free, put_bytes, put_zeros
from engine.formats.profile_block.symbols._symbol_arrays cimport StringItem

from engine.formats.profile_block.table.profile_table import SCHEMA

cdef tuple OPTIONAL_NAMES = ("DropFrames", "KeepFrames", "DurationNanos", "Period", "DefaultSampleType")
cdef object SAMPLES_TYPE = SCHEMA.field("Samples").type
cdef object SAMPLE_TYPE = SAMPLES_TYPE.value_type
cdef object LABELS_TYPE = SAMPLE_TYPE.field("Labels").type
cdef object NO_LABELS = pa.nulls(0, LABELS_TYPE.value_type)     # an array of Python values would import pandas
cdef object COMMENTS_TYPE = SCHEMA.field("Comments").type
cdef object ANNOTATIONS_TYPE = SCHEMA.field("Annotations").type
cdef object TIME_TYPE = SCHEMA.field("TimeNanos").type


cdef class RowBlock:
    """Owns rows; ``owner`` keeps alive the bytes that their texts point into."""

    def __cinit__(self):
        memset(&self.rows, 0, sizeof(RowColumns))

    def __dealloc__(self):
        cdef int index
        for index in range(FLAT_OPTIONALS):
            buffer_free(&self.rows.optionals[index])
            buffer_free(&self.rows.optionals_valid[index])
        buffer_free(&self.rows.ids)
        buffer_free(&self.rows.series)
        buffer_free(&self.rows.partitions)
        buffer_free(&self.rows.totals)
        buffer_free(&self.rows.times)
        buffer_free(&self.rows.sample_starts)
        buffer_free(&self.rows.stacks)
        buffer_free(&self.rows.values)
        buffer_free(&self.rows.spans)
        buffer_free(&self.rows.span_valid)
        buffer_free(&self.rows.traces)
        buffer_free(&self.rows.trace_valid)
        buffer_free(&self.rows.comment_starts)
        buffer_free(&self.rows.comments)
        buffer_free(&self.rows.annotation_starts)
        buffer_free(&self.rows.annotation_keys)
        buffer_free(&self.rows.annotation_values)


cdef int rows_start(RowColumns* rows) except -1 nogil:
    """Remove all rows but keep the memory."""
    cdef int index
    for index in range(FLAT_OPTIONALS):
        rows.optionals[index].size = rows.optionals_valid[index].size = 0
    rows.row_count = rows.sample_count = 0
    rows.ids.size = rows.series.size = rows.partitions.size = rows.totals.size = rows.times.size = 0
    rows.sample_starts.size = rows.stacks.size = rows.values.size = rows.spans.size = rows.span_valid.size = 0
    rows.traces.size = rows.trace_valid.size = rows.comment_starts.size = rows.comments.size = 0
    rows.annotation_starts.size = rows.annotation_keys.size = rows.annotation_values.size = 0
    put_zeros(&rows.sample_starts, sizeof(int64_t))
    put_zeros(&rows.comment_starts, sizeof(int64_t))
    return put_zeros(&rows.annotation_starts, sizeof(int64_t))


cdef inline int _put_int(Buffer* out, int64_t value) except -1 nogil:
    return put_bytes(out, &value, sizeof(int64_t))


cdef inline int _put_slice(Buffer* out, const Buffer* source, size_t start, size_t count, size_t unit) except -1 nogil:
    return put_bytes(out, source.data + start * unit, count * unit)


cdef int rows_append(RowColumns* out, const RowColumns* source, size_t row, int64_t series, const int64_t* stacks) except -1 nogil:
    """Append a row of a source with another series number and other stack ids."""
    cdef size_t start = int_at(&source.sample_starts, row), count = int_at(&source.sample_starts, row + 1) - start
    cdef int index
    _put_slice(&out.ids, &source.ids, row, 1, 16)
    _put_int(&out.series, series)
    _put_slice(&out.partitions, &source.partitions, row, 1, sizeof(int64_t))
    _put_slice(&out.totals, &source.totals, row, 1, sizeof(int64_t))
    _put_slice(&out.times, &source.times, row, 1, sizeof(int64_t))
    for index in range(FLAT_OPTIONALS):
        _put_slice(&out.optionals[index], &source.optionals[index], row, 1, sizeof(int64_t))
        _put_slice(&out.optionals_valid[index], &source.optionals_valid[index], row, 1, 1)
    put_bytes(&out.stacks, stacks, count * sizeof(int64_t))
    _put_slice(&out.values, &source.values, start, count, sizeof(int64_t))
    _put_slice(&out.spans, &source.spans, start, count, sizeof(int64_t))
    _put_slice(&out.span_valid, &source.span_valid, start, count, 1)
    _put_slice(&out.traces, &source.traces, start, count, 16)
    _put_slice(&out.trace_valid, &source.trace_valid, start, count, 1)
    out.row_count += 1
    out.sample_count += count
    _put_int(&out.sample_starts, out.sample_count)
    start = int_at(&source.comment_starts, row)
    count = int_at(&source.comment_starts, row + 1) - start
    _put_slice(&out.comments, &source.comments, start, count, sizeof(int64_t))
    _put_int(&out.comment_starts, out.comments.size // sizeof(int64_t))
    start = int_at(&source.annotation_starts, row)
    count = int_at(&source.annotation_starts, row + 1) - start
    _put_slice(&out.annotation_keys, &source.annotation_keys, start, count, sizeof(StringItem))
    _put_slice(&out.annotation_values, &source.annotation_values, start, count, sizeof(StringItem))
    return _put_int(&out.annotation_starts, out.annotation_keys.size // sizeof(StringItem))


cdef int64_t wrong_total(const RowColumns* rows) noexcept nogil:
    """Return the first row whose values do not sum to its TotalValue, -1 if there is none."""
    cdef size_t row, sample
    cdef uint64_t total
    for row in range(rows.row_count):
        total = 0
        for sample in range(int_at(&rows.sample_starts, row), int_at(&rows.sample_starts, row + 1)):
            total += <uint64_t>int_at(&rows.values, sample)
        if total != <uint64_t>int_at(&rows.totals, row):
            return row
    return -1


cdef object _bytes_of(const Buffer* buffer):
    """Return a copy as an Arrow buffer."""
    return pa.py_buffer((<const char*>buffer.data)[:buffer.size] if buffer.size else b"")


cdef tuple _validity(const Buffer* valid):
    """Return (bitmap or None, null count) of validity bytes."""
    cdef size_t index, nulls = 0
    cdef bytearray bits
    cdef uint8_t* out
    for index in range(valid.size):
        nulls += valid.data[index] == 0
    if nulls == 0:
        return None, 0
    bits = bytearray((valid.size + 7) // 8)
    out = <uint8_t*><char*>bits
    for index in range(valid.size):
        out[index >> 3] |= <uint8_t>(valid.data[index] << (index & 7))
    return pa.py_buffer(bits), nulls


cdef object _narrow(const Buffer* numbers):
    """Return int64 numbers as an Arrow buffer of 32-bit numbers (list offsets, series numbers)."""
    cdef size_t index, count = numbers.size // sizeof(int64_t)
    cdef bytearray narrow = bytearray(4 * count)
    cdef uint32_t* out = <uint32_t*><char*>narrow
    for index in range(count):
        out[index] = <uint32_t>int_at(numbers, index)
    return pa.py_buffer(narrow)


cdef object _column(kind, size_t count, const Buffer* values, const Buffer* valid):
    cdef tuple validity = (None, 0) if valid == NULL else _validity(valid)
    return pa.Array.from_buffers(kind, count, [validity[0], _bytes_of(values)], validity[1])


cdef object _texts(const Buffer* items):
    """Return texts as an Arrow array of strings, without validation of UTF-8."""
    cdef size_t index, count = items.size // sizeof(StringItem)
    cdef const StringItem* texts = <const StringItem*>items.data
    cdef Buffer ends = Buffer(NULL, 0, 0)
    cdef Buffer data = Buffer(NULL, 0, 0)
    try:
        put_zeros(&ends, sizeof(int64_t))
        for index in range(count):
            put_bytes(&data, texts[index].data, texts[index].size)
            _put_int(&ends, data.size)
        return pa.Array.from_buffers(pa.string(), count, [None, _narrow(&ends), _bytes_of(&data)], 0)
    finally:
        buffer_free(&ends)
        buffer_free(&data)


cdef object _list(kind, size_t count, const Buffer* starts, elements):
    return pa.Array.from_buffers(kind, count, [None, _narrow(starts)], 0, children=[elements])


cdef object _samples(RowColumns* rows):
    cdef size_t count = rows.sample_count
    no_labels = pa.Array.from_buffers(
        LABELS_TYPE, count, [None, pa.py_buffer(bytes(4 * (count + 1)))], 0, children=[NO_LABELS]
    )
    children = [
        _column(pa.uint64(), count, &rows.stacks, NULL),
        _column(pa.int64(), count, &rows.values, NULL),
        no_labels,
        _column(pa.uint64(), count, &rows.spans, &rows.span_valid),
        _column(pa.binary(16), count, &rows.traces, &rows.trace_valid),
    ]
    return pa.Array.from_buffers(SAMPLE_TYPE, count, [None], 0, children=children)


cdef object to_batch(RowColumns* rows):
    """Return the rows as a record batch in SCHEMA (copied)."""
    cdef size_t count = rows.row_count
    cdef int index
    optionals = [
        _column(pa.int64(), count, &rows.optionals[index], &rows.optionals_valid[index])
        for index in range(FLAT_OPTIONALS)
    ]
    ids = pa.ExtensionArray.from_storage(pa.uuid(), _column(pa.binary(16), count, &rows.ids, NULL))
    annotations = pa.StructArray.from_arrays(
        [_texts(&rows.annotation_keys), _texts(&rows.annotation_values)], fields=list(ANNOTATIONS_TYPE.value_type)
    )
    comments = _column(pa.int64(), rows.comments.size // sizeof(int64_t), &rows.comments, NULL)
    arrays = [
        ids,
        pa.Array.from_buffers(pa.uint32(), count, [None, _narrow(&rows.series)], 0),
        _column(pa.uint64(), count, &rows.partitions, NULL),
        _column(pa.uint64(), count, &rows.totals, NULL),
        _list(SAMPLES_TYPE, count, &rows.sample_starts, _samples(rows)),
        optionals[0],
        optionals[1],
        _column(TIME_TYPE, count, &rows.times, NULL),
        optionals[2],
        optionals[3],
        _list(COMMENTS_TYPE, count, &rows.comment_starts, comments),
        optionals[4],
        _list(ANNOTATIONS_TYPE, count, &rows.annotation_starts, annotations),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


cdef int _put_array(Buffer* out, array, kind) except -1:
    """Append the values of a numpy or Arrow array, cast to ``kind`` without a range check."""
    cdef const uint8_t[::1] view = np.ascontiguousarray(array).astype(kind, copy=False).view(np.uint8).reshape(-1)
    if view.shape[0]:
        put_bytes(out, &view[0], view.shape[0])
    return 0


cdef int _put_numbers(Buffer* out, array) except -1:
    """Append an Arrow array of numbers, nulls as 0."""
    filled = array.fill_null(0) if array.null_count else array
    numbers = filled.to_numpy(zero_copy_only=False)
    if numbers.dtype == np.uint64:
        numbers = numbers.view(np.int64)
    return _put_array(out, numbers, np.int64)


cdef int _put_valid(Buffer* out, array) except -1:
    return _put_array(out, array.is_valid().to_numpy(zero_copy_only=False), np.uint8)


cdef int _put_fixed(Buffer* out, array) except -1:
    """Append an Arrow array of 16-byte values, nulls as zeros."""
    filled = array.fill_null(bytes(16)) if array.null_count else array
    cdef const uint8_t[::1] view
    if len(filled):
        view = np.frombuffer(filled.buffers()[1], np.uint8)[16 * filled.offset : 16 * (filled.offset + len(filled))]
        put_bytes(out, &view[0], view.shape[0])
    return 0


cdef int _put_starts(Buffer* out, array) except -1:
    """Replace ``out`` by the starts of an Arrow list's elements, relative to its first element."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    out.size = 0
    return _put_array(out, offsets - offsets[0], np.int64)


cdef int _put_texts(Buffer* out, list texts) except -1:
    cdef StringItem item
    cdef bytes text
    for text in texts:
        item.data = <const uint8_t*><char*>text
        item.size = <uint32_t>len(text)
        put_bytes(out, &item, sizeof(StringItem))
    return 0


cdef bint fill_from_batch(RowBlock block, batch) except -1:
    """Replace the rows by those of a batch in SCHEMA; return false (and no rows) if its samples have labels."""
    cdef RowColumns* rows = &block.rows
    cdef int index
    rows_start(rows)
    samples = batch.column("Samples")
    stacks, values, labels, spans, traces = samples.flatten().flatten()
    if len(labels) and labels.offsets[0].as_py() != labels.offsets[len(labels)].as_py():
        return False
    _put_fixed(&rows.ids, batch.column("ID").storage)
    _put_numbers(&rows.series, batch.column("SeriesIndex"))
    _put_numbers(&rows.partitions, batch.column("StacktracePartition"))
    _put_numbers(&rows.totals, batch.column("TotalValue"))
    _put_numbers(&rows.times, batch.column("TimeNanos").cast(pa.int64()))
    for index in range(FLAT_OPTIONALS):
        _put_numbers(&rows.optionals[index], batch.column(OPTIONAL_NAMES[index]))
        _put_valid(&rows.optionals_valid[index], batch.column(OPTIONAL_NAMES[index]))
    _put_starts(&rows.sample_starts, samples)
    _put_numbers(&rows.stacks, stacks)
    _put_numbers(&rows.values, values)
    _put_numbers(&rows.spans, spans)
    _put_valid(&rows.span_valid, spans)
    _put_fixed(&rows.traces, traces)
    _put_valid(&rows.trace_valid, traces)
    comments, annotations = batch.column("Comments"), batch.column("Annotations")
    _put_starts(&rows.comment_starts, comments)
    _put_numbers(&rows.comments, comments.flatten())
    _put_starts(&rows.annotation_starts, annotations)
    keys, texts = annotations.flatten().flatten()
    block.owner = (keys.cast(pa.binary()).to_pylist(), texts.cast(pa.binary()).to_pylist())
    _put_texts(&rows.annotation_keys, block.owner[0])
    _put_texts(&rows.annotation_values, block.owner[1])
    rows.row_count = batch.num_rows
    rows.sample_count = len(stacks)
    return True
