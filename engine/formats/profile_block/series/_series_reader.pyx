"""Decoder of a series index into C arrays; every part and checksum is verified.

The format is "Series index" in ``docs/reference/formats/profile-block.md``. The list of all series contains every series
and its references ascend, so the arrays are in the order of the entries in the file.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from engine.core._bad_object cimport BAD, CHECKSUM, FORMAT, LIMIT, REFERENCE, TRUNCATED, refuse
from engine.core._byte_buffers cimport (
    Buffer, Cursor, be32, buffer_free, cursor_over, left, put_bytes, read_svarint, read_u32_be, read_u64_be,
    read_u8, read_uvarint, take,
)
from engine.core._checksum_kernels cimport crc32c_of
from engine.formats.profile_block.series._series_arrays cimport LabelItem, SeriesItem
from engine.formats.profile_block.symbols._symbol_arrays cimport StringItem

cdef enum:
    VERSION = 2
    HEADER_BYTES = 5
    TOC_BYTES = 76
    SERIES_ALIGNMENT = 16
    CHUNK_BYTES_MIN = 8

cdef const char* SECTION = b"series_index"


ctypedef struct Contents:
    uint64_t symbols
    uint64_t series
    uint64_t label_indices
    uint64_t label_index_table
    uint64_t postings
    uint64_t postings_table
    uint64_t fingerprint_offsets


ctypedef struct Index:
    const uint8_t* data
    size_t size
    Contents contents


cdef class SeriesTable:
    """The series of a section in the order of its list of all series. Labels point into the bytes of the section."""

    def __dealloc__(self):
        buffer_free(&self.series)
        buffer_free(&self.labels)
        buffer_free(&self.symbols)


cdef SeriesTable read_series_index(bytes section):
    """Return the series of a section. Raises BadObject with the offset of the fault."""
    cdef SeriesTable table = SeriesTable()
    cdef Index index
    table._section = section
    index.data = <const uint8_t*><char*>section
    index.size = len(section)
    with nogil:
        _read_contents(&index)
        _read_symbols(&index, &table.symbols)
        _read_series(&index, table)
        _check_label_indices(&index, table)
        _check_postings(&index, table)
        _check_fingerprint_offsets(&index, table)
    return table


cdef int _read_contents(Index* index) except -1 nogil:
    cdef Contents* contents = &index.contents
    cdef Cursor cursor
    cdef size_t start
    if index.size < HEADER_BYTES + TOC_BYTES:
        refuse(TRUNCATED, SECTION, 0, b"the section is too short for a series index")
    if be32(index.data) != <uint32_t>0xBAAAD700u or index.data[4] != VERSION:
        refuse(FORMAT, SECTION, 0, b"not a series index of version 2")
    start = index.size - TOC_BYTES
    if crc32c_of(index.data + start, TOC_BYTES - 4) != be32(index.data + index.size - 4):
        refuse(CHECKSUM, SECTION, start, b"the checksum of the table of contents does not match")
    cursor = cursor_over(index.data + start, TOC_BYTES)
    contents.symbols = read_u64_be(&cursor)
    contents.series = read_u64_be(&cursor)
    contents.label_indices = read_u64_be(&cursor)
    contents.label_index_table = read_u64_be(&cursor)
    contents.postings = read_u64_be(&cursor)
    contents.postings_table = read_u64_be(&cursor)
    contents.fingerprint_offsets = read_u64_be(&cursor)
    if not (
        contents.symbols == HEADER_BYTES and contents.symbols <= contents.series
        and contents.series <= contents.label_indices and contents.label_indices <= contents.postings
        and contents.postings <= contents.label_index_table
        and contents.label_index_table <= contents.postings_table
        and contents.postings_table <= contents.fingerprint_offsets and contents.fingerprint_offsets <= start
    ):
        refuse(REFERENCE, SECTION, start, b"the parts are out of order or outside of the section")
    return 0


cdef int _open_block(const Index* index, uint64_t position, Cursor* block) except -1 nogil:
    """Verify the block ``u32 length | bytes | u32 CRC32C`` at a position and set a cursor over its bytes."""
    cdef Cursor cursor
    cdef const uint8_t* start
    cdef uint32_t size
    if position > index.size - TOC_BYTES:
        refuse(TRUNCATED, SECTION, position, b"a block is outside of the section")
    cursor = cursor_over(index.data + position, index.size - TOC_BYTES - position)
    size = read_u32_be(&cursor)
    start = take(&cursor, size)
    if start == NULL or left(&cursor) < 4:
        refuse(TRUNCATED, SECTION, position, b"a block exceeds the section")
    if crc32c_of(start, size) != read_u32_be(&cursor):
        refuse(CHECKSUM, SECTION, position, b"the checksum of a block does not match")
    block[0] = cursor_over(start, size)
    return 0


cdef int _expect_end(const Index* index, const Cursor* block) except -1 nogil:
    """Raise an error if a read of the block failed or bytes are left unread."""
    if block.failed:
        refuse(TRUNCATED, SECTION, block.data - index.data + block.at, b"a block ends before its items")
    if left(block):
        refuse(BAD, SECTION, block.data - index.data + block.at, b"unexpected bytes at the end of a block")
    return 0


cdef int64_t _count(const Index* index, Cursor* block, size_t unit_bytes) except -1 nogil:
    """Return a u32 count of items of at least ``unit_bytes`` each; raise an error if they do not fit."""
    cdef int64_t at = block.data - index.data + block.at
    cdef uint32_t count = read_u32_be(block)
    if block.failed or count > left(block) // unit_bytes:
        refuse(LIMIT, SECTION, at, b"the items do not fit in the block")
    return count


cdef int _compare(const StringItem* left_item, const StringItem* right_item) noexcept nogil:
    cdef uint32_t size = min(left_item.size, right_item.size)
    cdef int order = memcmp(left_item.data, right_item.data, size) if size else 0
    if order:
        return order
    return <int>(left_item.size > right_item.size) - <int>(left_item.size < right_item.size)


cdef StringItem _text(Cursor* block) noexcept nogil:
    cdef StringItem item
    cdef uint64_t size = read_uvarint(block)
    item.data = take(block, size)
    item.size = <uint32_t>size if item.data != NULL else 0
    return item


cdef int _read_symbols(Index* index, Buffer* symbols) except -1 nogil:
    cdef Cursor block
    cdef StringItem item, previous
    cdef int64_t number, count
    _open_block(index, index.contents.symbols, &block)
    if <uint64_t>(block.data - index.data) + block.size + 4 != index.contents.series:
        refuse(REFERENCE, SECTION, index.contents.series, b"the series do not start where the symbols end")
    count = _count(index, &block, 1)
    for number in range(count):
        item = _text(&block)
        if block.failed:
            break
        if number and _compare(&previous, &item) >= 0:
            refuse(BAD, SECTION, index.contents.symbols, b"the symbols are not unique and sorted")
        put_bytes(symbols, &item, sizeof(StringItem))
        previous = item
    return _expect_end(index, &block)


cdef int _read_series(Index* index, SeriesTable table) except -1 nogil:
    """Read the entries, which start at multiples of the alignment relative to the start of the section."""
    cdef uint64_t position = index.contents.series
    cdef Cursor cursor, body
    cdef const uint8_t* start
    cdef uint64_t size
    while position < index.contents.label_indices:
        position = (position + SERIES_ALIGNMENT - 1) // SERIES_ALIGNMENT * SERIES_ALIGNMENT
        if position >= index.contents.label_indices:
            refuse(TRUNCATED, SECTION, position, b"the part ends inside padding")
        if position // SERIES_ALIGNMENT > 0xFFFFFFFFu:
            refuse(LIMIT, SECTION, position, b"the position of a series exceeds the range of references")
        cursor = cursor_over(index.data + position, index.contents.label_indices - position)
        size = read_uvarint(&cursor)
        start = take(&cursor, size)
        if start == NULL or left(&cursor) < 4:
            refuse(TRUNCATED, SECTION, position, b"a series entry exceeds its part")
        if crc32c_of(start, size) != read_u32_be(&cursor):
            refuse(CHECKSUM, SECTION, position, b"the checksum of a series does not match")
        body = cursor_over(start, size)
        _read_entry(index, table, &body, <uint32_t>(position // SERIES_ALIGNMENT))
        position += cursor.at
    return 0


cdef int _read_entry(Index* index, SeriesTable table, Cursor* body, uint32_t ref) except -1 nogil:
    cdef SeriesItem item
    cdef LabelItem label
    cdef int64_t at = body.data - index.data
    cdef uint64_t count, number, duration, position
    item.ref = ref
    item.fingerprint = read_u64_be(body)
    count = read_uvarint(body)
    if count > left(body) // 2:
        refuse(LIMIT, SECTION, at + 8, b"the labels do not fit in the entry")
    item.first_label = <uint32_t>(table.labels.size // sizeof(LabelItem))
    item.label_count = <uint32_t>count
    for number in range(count):
        _symbol(index, table, body, &label.name)
        _symbol(index, table, body, &label.value)
        put_bytes(&table.labels, &label, sizeof(LabelItem))
    count = read_uvarint(body)
    if count != 1:
        refuse(FORMAT, SECTION, at, b"a series does not have exactly 1 chunk")
    item.min_time_ns = read_svarint(body)
    duration = read_uvarint(body)
    read_uvarint(body)      # size in KB, always 0
    position = read_uvarint(body)
    read_u32_be(body)       # chunk checksum, always 0
    _expect_end(index, body)
    if position > 0xFFFFFFFFu or duration > <uint64_t>0x7FFFFFFFFFFFFFFF - <uint64_t>item.min_time_ns and (
        item.min_time_ns >= 0 or duration > <uint64_t>0x7FFFFFFFFFFFFFFF + (0 - <uint64_t>item.min_time_ns)
    ):
        refuse(LIMIT, SECTION, at, b"the number or time of the series is out of range")
    item.max_time_ns = <int64_t>(<uint64_t>item.min_time_ns + duration)
    item.position = <uint32_t>position
    return put_bytes(&table.series, &item, sizeof(SeriesItem))


cdef int _symbol(const Index* index, SeriesTable table, Cursor* body, StringItem* item) except -1 nogil:
    cdef uint64_t ref = read_uvarint(body)
    if body.failed or ref >= table.symbols.size // sizeof(StringItem):
        refuse(REFERENCE, SECTION, body.data - index.data + body.at, b"a label refers to a symbol that does not exist")
    item[0] = (<StringItem*>table.symbols.data)[ref]
    return 0


cdef int _open_list(const Index* index, uint64_t position, uint64_t* free_from, uint64_t end,
                    Cursor* block) except -1 nogil:
    """Open the list that a table refers to; lists are consecutive in table order, so none is read twice."""
    if position < free_from[0] or position >= end:
        refuse(REFERENCE, SECTION, position, b"a list is outside of the unread rest of its part")
    _open_block(index, position, block)
    free_from[0] = position + 8 + block.size
    return 0


cdef int _check_label_indices(const Index* index, SeriesTable table) except -1 nogil:
    cdef Cursor entries, block
    cdef uint64_t free_from = index.contents.label_indices
    cdef size_t symbol_count = table.symbols.size // sizeof(StringItem)
    cdef int64_t number, count, value, values, ref, previous
    _open_block(index, index.contents.label_index_table, &entries)
    count = _count(index, &entries, 3)
    for number in range(count):
        if read_uvarint(&entries) != 1:
            refuse(FORMAT, SECTION, index.contents.label_index_table, b"a label index entry does not have 1 string")
        _text(&entries)
        _open_list(index, read_uvarint(&entries), &free_from, index.contents.postings, &block)
        if read_u32_be(&block) != 1:
            refuse(FORMAT, SECTION, block.data - index.data, b"a label index does not have 1 name")
        values = _count(index, &block, 4)
        previous = -1
        for value in range(values):
            ref = read_u32_be(&block)
            if ref <= previous or <size_t>ref >= symbol_count:
                refuse(REFERENCE, SECTION, block.data - index.data, b"label values do not ascend or are not symbols")
            previous = ref
        _expect_end(index, &block)
    return _expect_end(index, &entries)


cdef int _check_postings(const Index* index, SeriesTable table) except -1 nogil:
    """Verify every postings list, and that the list of all series exists and is complete."""
    cdef Cursor entries, block
    cdef StringItem name, value
    cdef uint64_t free_from = index.contents.postings
    cdef int64_t number, count, refs
    cdef bint found = False
    _open_block(index, index.contents.postings_table, &entries)
    count = _count(index, &entries, 4)
    for number in range(count):
        if read_uvarint(&entries) != 2:
            refuse(FORMAT, SECTION, index.contents.postings_table, b"a postings entry does not have 2 strings")
        name = _text(&entries)
        value = _text(&entries)
        _open_list(index, read_uvarint(&entries), &free_from, index.contents.label_index_table, &block)
        refs = _count(index, &block, 4)
        _check_refs(index, table, &block, refs)
        if name.size == 0 and value.size == 0:
            found = <size_t>refs == table.count()
    _expect_end(index, &entries)
    if not found:
        refuse(REFERENCE, SECTION, index.contents.postings_table, b"the list of all series is incomplete")
    return 0


cdef int _check_refs(const Index* index, SeriesTable table, Cursor* block, int64_t count) except -1 nogil:
    """Raise an error for references that do not ascend or are unknown; both lists ascend, so one pass suffices."""
    cdef size_t known = 0
    cdef int64_t number
    cdef uint32_t ref
    for number in range(count):
        ref = read_u32_be(block)
        known = _find(table, ref, known)
        if known == table.count():
            refuse(REFERENCE, SECTION, block.data - index.data,
                   b"a postings list does not ascend or refers to an unknown series")
        known += 1
    return _expect_end(index, block)


cdef size_t _find(SeriesTable table, uint64_t ref, size_t start) noexcept nogil:
    """Return the index of the series with a reference, searched from ``start`` on; the count if there is none."""
    cdef SeriesItem* items = table.items()
    cdef size_t low = start, high = table.count(), middle
    while low < high:
        middle = (low + high) // 2
        if items[middle].ref < ref:
            low = middle + 1
        else:
            high = middle
    return low if low < table.count() and items[low].ref == ref else table.count()


cdef int _check_fingerprint_offsets(const Index* index, SeriesTable table) except -1 nogil:
    cdef Cursor block
    cdef int64_t number, count
    cdef uint64_t ref, fingerprint
    cdef size_t found
    _open_block(index, index.contents.fingerprint_offsets, &block)
    count = _count(index, &block, 16)
    for number in range(count):
        ref = read_u64_be(&block)
        fingerprint = read_u64_be(&block)
        found = _find(table, ref, 0)
        if found == table.count() or table.items()[found].fingerprint != fingerprint:
            refuse(REFERENCE, SECTION, block.data - index.data, b"a fingerprint offset does not refer to its series")
    return _expect_end(index, &block)
