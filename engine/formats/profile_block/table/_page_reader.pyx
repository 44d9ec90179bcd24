"""Decoder of the pages of an uncompressed column chunk into flat arrays.

Supports data pages v1 and v2, PLAIN, dictionary, DELTA_BINARY_PACKED and DELTA_LENGTH_BYTE_ARRAY, and verifies page
checksums. ``read_chunk`` returns 0 for anything unknown or inconsistent; pyarrow then decides whether the chunk is
damaged or unusual. Nothing outside of the chunk's bytes is read; the caller limits ``value_count``.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from engine.core._byte_buffers cimport (
    Buffer, Cursor, buffer_free, buffer_reserve, cursor_over, left, put_bytes, read_u32_le, read_u8, take,
)
from engine.core._checksum_kernels cimport crc32_of
from engine.formats.profile_block.table._integer_columns cimport DONE, delta_decode, indexes_decode, levels_decode
from engine.formats.profile_block.table._parquet_footer cimport AS_FIXED, AS_INT32, AS_INT64, AS_TEXT, ChunkItem, LeafShape
from engine.formats.profile_block.symbols._symbol_arrays cimport StringItem
from engine.formats.profile_block.table._thrift_compact cimport STOP, STRUCT, FALSE, TRUE, next_field, read_int, skip

cdef enum:
    DATA_PAGE = 0
    INDEX_PAGE = 1
    DICTIONARY_PAGE = 2
    DATA_PAGE_V2 = 3
    PLAIN = 0
    PLAIN_DICTIONARY = 2
    RLE = 3
    DELTA_BINARY_PACKED = 5
    DELTA_LENGTH_BYTE_ARRAY = 6
    RLE_DICTIONARY = 8
    FIXED_BYTES = 16


ctypedef struct PageHeader:
    int64_t kind
    int64_t size
    int64_t crc
    bint has_crc
    int64_t level_count
    int64_t encoding
    int64_t def_encoding
    int64_t rep_encoding
    int64_t def_bytes
    int64_t rep_bytes


cdef void column_free(Column* column) noexcept nogil:
    buffer_free(&column.values)
    buffer_free(&column.def_levels)
    buffer_free(&column.rep_levels)
    buffer_free(&column.dictionary)
    buffer_free(&column.indexes)


cdef inline size_t _unit(const LeafShape* shape) noexcept nogil:
    """Return the size of a decoded value in bytes."""
    return sizeof(int64_t) if shape.physical == AS_INT32 or shape.physical == AS_INT64 else 16


cdef int read_chunk(const uint8_t* data, const ChunkItem* chunk, const LeafShape* shape, Column* column) except -1 nogil:
    """Decode all pages of a chunk whose bytes start at ``data``; return 1, or 0 if pyarrow must read the chunk."""
    cdef Cursor cursor = cursor_over(data, chunk.size)
    cdef PageHeader header
    cdef const uint8_t* body
    column.values.size = column.def_levels.size = column.rep_levels.size = column.dictionary.size = 0
    column.level_count = column.value_count = 0
    while column.level_count < <size_t>chunk.value_count:
        _read_header(&cursor, &header)
        if cursor.failed or header.size < 0:
            return 0
        body = take(&cursor, header.size)
        if body == NULL or (header.has_crc and crc32_of(body, header.size) != <uint32_t>header.crc):
            return 0
        if header.kind == DICTIONARY_PAGE:
            if column.dictionary.size or not _read_dictionary(body, &header, shape, column):
                return 0
        elif header.kind == DATA_PAGE or header.kind == DATA_PAGE_V2:
            if header.level_count < 0 or header.level_count > chunk.value_count - <int64_t>column.level_count:
                return 0
            if not _read_data_page(body, &header, shape, column):
                return 0
        elif header.kind != INDEX_PAGE:
            return 0
    return 1


cdef void _read_header(Cursor* cursor, PageHeader* header) noexcept nogil:
    cdef int number = 0, kind
    header.kind = header.size = header.level_count = header.encoding = -1
    header.def_encoding = header.rep_encoding = RLE
    header.def_bytes = header.rep_bytes = 0
    header.crc = 0
    header.has_crc = False
    while True:
        kind = next_field(cursor, &number)
        if kind == STOP:
            break
        if number == 1:
            header.kind = read_int(cursor, kind)
        elif number == 3:
            header.size = read_int(cursor, kind)
        elif number == 4:
            header.crc = read_int(cursor, kind)
            header.has_crc = True
        elif number in (5, 7, 8) and kind == STRUCT:
            _read_inner_header(cursor, header, number == 8)
        else:
            skip(cursor, kind)


cdef void _read_inner_header(Cursor* cursor, PageHeader* header, bint second) noexcept nogil:
    """Read the header of a data page (version 1 or 2) or a dictionary page."""
    cdef int number = 0, kind
    while True:
        kind = next_field(cursor, &number)
        if kind == STOP:
            break
        if number == 1:
            header.level_count = read_int(cursor, kind)
        elif number == (4 if second else 2):
            header.encoding = read_int(cursor, kind)
        elif number == 3 and not second and kind != TRUE and kind != FALSE:
            header.def_encoding = read_int(cursor, kind)
        elif number == 4 and not second:
            header.rep_encoding = read_int(cursor, kind)
        elif number == 5 and second:
            header.def_bytes = read_int(cursor, kind)
        elif number == 6 and second:
            header.rep_bytes = read_int(cursor, kind)
        else:
            skip(cursor, kind)


cdef int _read_dictionary(const uint8_t* body, const PageHeader* header, const LeafShape* shape,
                          Column* column) except -1 nogil:
    cdef Cursor cursor = cursor_over(body, header.size)
    if header.encoding != PLAIN and header.encoding != PLAIN_DICTIONARY or header.level_count < 0:
        return 0
    if shape.physical == AS_TEXT:
        return 0
    return _read_plain(&cursor, header.level_count, shape, &column.dictionary)


cdef int _read_data_page(const uint8_t* body, const PageHeader* header, const LeafShape* shape,
                         Column* column) except -1 nogil:
    cdef Cursor cursor = cursor_over(body, header.size)
    cdef size_t count = header.level_count, start, present, index
    cdef const uint8_t* levels
    if not _read_levels(&cursor, header, shape.max_rep, header.rep_bytes, header.rep_encoding, &column.rep_levels):
        return 0
    if not _read_levels(&cursor, header, shape.max_def, header.def_bytes, header.def_encoding, &column.def_levels):
        return 0
    present = count
    if shape.max_def:
        present = 0
        levels = column.def_levels.data + column.def_levels.size - count
        for index in range(count):
            present += levels[index] == shape.max_def
    start = column.values.size
    if present and not _read_values(&cursor, header.encoding, present, shape, column):
        return 0
    if column.values.size - start != present * _unit(shape):
        return 0
    column.level_count += count
    column.value_count += present
    return 1


cdef int _read_levels(Cursor* cursor, const PageHeader* header, uint8_t max_level, int64_t size, int64_t encoding,
                      Buffer* levels) except -1 nogil:
    """Append the levels of a page unless the leaf has no such levels."""
    cdef const uint8_t* start
    cdef uint8_t* out
    cdef int64_t index
    if header.kind == DATA_PAGE:
        if max_level == 0:
            return 1
        size = read_u32_le(cursor)
    if size < 0 or encoding != RLE:
        return 0
    start = take(cursor, size)
    if start == NULL:
        return 0
    if max_level == 0:
        return 1
    buffer_reserve(levels, header.level_count)
    out = levels.data + levels.size
    if levels_decode(start, size, 1 if max_level == 1 else 2, out, header.level_count) != DONE:
        return 0
    for index in range(header.level_count):
        if out[index] > max_level:
            return 0
    levels.size += header.level_count
    return 1


cdef int _read_values(Cursor* cursor, int64_t encoding, size_t count, const LeafShape* shape,
                      Column* column) except -1 nogil:
    """Append ``count`` values of a page to the column."""
    cdef size_t decoded = 0
    if encoding == PLAIN:
        return _read_plain(cursor, count, shape, &column.values)
    if encoding == RLE_DICTIONARY or encoding == PLAIN_DICTIONARY:
        return _read_indexes(cursor, count, shape, column)
    if encoding == DELTA_BINARY_PACKED and (shape.physical == AS_INT64 or shape.physical == AS_INT32):
        buffer_reserve(&column.values, count * sizeof(int64_t))
        if delta_decode(cursor, 64 if shape.physical == AS_INT64 else 32,
                        <int64_t*>(column.values.data + column.values.size), count, &decoded) != DONE:
            return 0
        column.values.size += decoded * sizeof(int64_t)
        return 1
    if encoding == DELTA_LENGTH_BYTE_ARRAY and shape.physical == AS_TEXT:
        return _read_texts(cursor, count, column)
    return 0


cdef int _read_plain(Cursor* cursor, size_t count, const LeafShape* shape, Buffer* out) except -1 nogil:
    cdef const uint8_t* start
    cdef size_t index, size = 4 if shape.physical == AS_INT32 else 8 if shape.physical == AS_INT64 else FIXED_BYTES
    cdef int32_t value
    cdef int64_t wide
    cdef StringItem text
    if shape.physical == AS_TEXT:
        if count > left(cursor) // 4:
            return 0
        for index in range(count):
            text.size = read_u32_le(cursor)
            text.data = take(cursor, text.size)
            if text.data == NULL:
                return 0
            put_bytes(out, &text, sizeof(StringItem))
        return 1
    if count > left(cursor) // size:
        return 0
    start = take(cursor, count * size)
    if shape.physical != AS_INT32:
        put_bytes(out, start, count * size)
        return 1
    for index in range(count):
        memcpy(&value, start + 4 * index, 4)
        wide = value
        put_bytes(out, &wide, sizeof(int64_t))
    return 1


cdef int _read_indexes(Cursor* cursor, size_t count, const LeafShape* shape, Column* column) except -1 nogil:
    cdef uint8_t width = read_u8(cursor)
    cdef size_t unit = _unit(shape), known = column.dictionary.size // unit, index
    cdef uint32_t* indexes
    cdef uint8_t* out
    buffer_reserve(&column.indexes, count * sizeof(uint32_t))
    indexes = <uint32_t*>column.indexes.data
    if cursor.failed or indexes_decode(cursor.data + cursor.at, left(cursor), width, indexes, count) != DONE:
        return 0
    buffer_reserve(&column.values, count * unit)
    out = column.values.data + column.values.size
    for index in range(count):
        if indexes[index] >= known:
            return 0
        if unit == 8:
            (<int64_t*>out)[index] = (<int64_t*>column.dictionary.data)[indexes[index]]
        else:
            memcpy(out + unit * index, column.dictionary.data + unit * indexes[index], 16)
    column.values.size += count * unit
    return 1


cdef int _read_texts(Cursor* cursor, size_t count, Column* column) except -1 nogil:
    """Append texts, which are stored as packed lengths followed by all bytes."""
    cdef Buffer lengths = Buffer(NULL, 0, 0)
    cdef size_t decoded = 0, index
    cdef int64_t length
    cdef StringItem text
    try:
        buffer_reserve(&lengths, count * sizeof(int64_t))
        if delta_decode(cursor, 32, <int64_t*>lengths.data, count, &decoded) != DONE or decoded != count:
            return 0
        for index in range(count):
            length = (<int64_t*>lengths.data)[index]
            if length < 0:
                return 0
            text.data = take(cursor, length)
            text.size = <uint32_t>length
            if text.data == NULL:
                return 0
            put_bytes(&column.values, &text, sizeof(StringItem))
    finally:
        buffer_free(&lengths)
    return 1
