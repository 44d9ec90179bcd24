"""Decoder of a symbols section (version 3) into C arrays ("Symbols" in ``docs/reference/formats/profile-block.md``).

All checksums, lengths, counts and references are verified here, so readers of a ``SymbolTable`` need no checks. Memory
is bounded by the size of the section: the ranges of tables must not exceed it in total, counts must fit in their bytes,
and the decoded size of all items is limited before they are decoded (``symbol_limits``).
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from engine.core._bad_object cimport BAD, CHECKSUM, FORMAT, LIMIT, REFERENCE, TRUNCATED, refuse
from engine.core._byte_buffers cimport (
    Cursor, be32, cursor_over, left, read_u8, read_u16_be, read_u32_be, read_u64_be, take,
)
from engine.core._checksum_kernels cimport crc32c_of
from engine.formats.profile_block.table._integer_columns cimport DONE, UNSUPPORTED, Decoded, delta_decode
from engine.formats.profile_block.symbols._stack_tree_reader cimport read_trees
from engine.formats.profile_block.symbols._symbol_arrays cimport (
    FunctionItem, LineItem, LocationItem, MappingItem, PartitionItem, StringItem,
)
from engine.formats.profile_block.symbols._symbol_ranges cimport Reading, charge, check_range, new_items, open_index

from engine.formats.profile_block.symbols.symbol_limits import decoded_bytes_max

cdef enum:
    REFERENCE_BYTES = 32
    CHUNK_HEADER_BYTES = 64
    BLOCK_ITEMS_MAX = 1024
    ITEMS_PER_BYTE_MAX = 24     # the densest block has 1024 items, a header of 24 bytes and a few nearly empty columns
    COLUMNS_MAX = 6

cdef const char* SECTION = b"symbols"


ctypedef struct Reference:
    int64_t at
    const uint8_t* data
    uint32_t size
    uint32_t count
    uint32_t per_block


cdef class SymbolTable:
    """The partitions of a section, ascending by id. Strings point into the section, which the table keeps alive."""

    def __dealloc__(self):
        cdef size_t index
        if self.partitions == NULL:
            return
        for index in range(self.count):
            free_partition(&self.partitions[index])
        free(self.partitions)

    cdef void keep(self, object section):
        """Set the owner of the bytes that the strings point into."""
        self._section = section


cdef void free_partition(PartitionItem* partition) noexcept nogil:
    free(partition.strings)
    free(partition.mappings)
    free(partition.functions)
    free(partition.locations)
    free(partition.lines)
    free(partition.nodes)
    free(partition.trees)
    free(partition.kept_nodes)


cdef SymbolTable read_symbols(bytes section):
    """Return the symbols of a section. Raises BadObject with the offset of the fault."""
    cdef SymbolTable table = SymbolTable()
    cdef Reading reading        # on the stack, to avoid fragmentation of the heap between long-lived arrays
    table._section = section
    reading.data = <const uint8_t*><char*>section
    reading.size = len(section)
    reading.referenced = 0
    reading.decoded = 0
    reading.decoded_max = decoded_bytes_max(len(section))
    with nogil:
        _read_section(table, &reading)
    return table


cdef int _read_section(SymbolTable table, Reading* reading) except -1 nogil:
    cdef Cursor index
    cdef size_t position, count
    open_index(reading, &index)
    count = read_u32_be(&index)
    if index.failed or count > left(&index) // (12 + 4 * REFERENCE_BYTES):
        refuse(LIMIT, SECTION, index.data - reading.data + index.at, b"the partitions do not fit in the index")
    table.partitions = <PartitionItem*>new_items(count, sizeof(PartitionItem))
    table.count = count
    for position in range(count):
        _read_partition(reading, &index, &table.partitions[position])
        if position and table.partitions[position].id <= table.partitions[position - 1].id:
            refuse(BAD, SECTION, index.data - reading.data + index.at, b"partitions are not in ascending order")
    if left(&index):
        refuse(BAD, SECTION, index.data - reading.data + index.at, b"unexpected bytes after the partition headers")
    return 0


cdef int _read_partition(Reading* reading, Cursor* index, PartitionItem* partition) except -1 nogil:
    cdef Reference locations, mappings, functions, strings
    cdef Cursor chunks
    cdef uint64_t chunk_count
    partition.id = read_u64_be(index)
    chunk_count = read_u32_be(index)
    if index.failed or chunk_count > left(index) // CHUNK_HEADER_BYTES:
        refuse(LIMIT, SECTION, index.data - reading.data + index.at, b"the stack chunks do not fit in the index")
    chunks = cursor_over(index.data, index.at + chunk_count * CHUNK_HEADER_BYTES)
    chunks.at = index.at
    take(index, chunk_count * CHUNK_HEADER_BYTES)
    _read_reference(reading, index, 1, 28, sizeof(LocationItem), &locations)
    _read_reference(reading, index, 3, 32, sizeof(MappingItem), &mappings)
    _read_reference(reading, index, 2, 24, sizeof(FunctionItem), &functions)
    _read_reference(reading, index, 4, 12, sizeof(StringItem), &strings)
    _read_strings(reading, &strings, partition)
    _read_mappings(reading, &mappings, partition)
    _read_functions(reading, &functions, partition)
    _read_locations(reading, &locations, partition)
    read_trees(reading, &chunks, chunk_count, partition)
    return 0


cdef int _read_reference(Reading* reading, Cursor* index, unsigned int format, unsigned int header_bytes,
                         size_t item_bytes, Reference* reference) except -1 nogil:
    cdef uint64_t offset
    cdef uint32_t crc
    reference.at = index.data - reading.data + index.at
    offset = read_u64_be(index)
    reference.size = read_u32_be(index)
    crc = read_u32_be(index)
    reference.count = read_u32_be(index)
    reference.per_block = read_u32_be(index)
    if read_u16_be(index) != header_bytes or read_u16_be(index) != format:
        refuse(FORMAT, SECTION, reference.at + 24, b"an unknown kind of symbol block")
    take(index, 4)
    if index.failed:
        refuse(TRUNCATED, SECTION, reference.at, b"the index ends inside a block reference")
    if reference.count and (reference.per_block == 0 or reference.per_block > BLOCK_ITEMS_MAX):
        refuse(FORMAT, SECTION, reference.at + 20, b"symbol blocks of more than 1024 items")
    check_range(reading, offset, reference.size, crc, reference.at)
    if reference.count > <uint64_t>reference.size * ITEMS_PER_BYTE_MAX:
        refuse(LIMIT, SECTION, reference.at + 16, b"the symbols do not fit in their bytes")
    charge(reading, reference.count, item_bytes, reference.at + 16)
    reference.data = reading.data + offset
    return 0


cdef int64_t _open_block(Reading* reading, Cursor* blocks, unsigned int header_bytes, size_t expected,
                         Cursor* header) except -1 nogil:
    """Verify the header of a block, which must have the expected number of items, and skip it; return that number."""
    cdef int64_t at = blocks.data - reading.data + blocks.at
    cdef const uint8_t* start = take(blocks, header_bytes)
    cdef uint32_t count
    if start == NULL:
        refuse(TRUNCATED, SECTION, at, b"the table ends before its items")
    if crc32c_of(start, header_bytes - 4) != be32(start + header_bytes - 4):
        refuse(CHECKSUM, SECTION, at, b"the checksum of a block header does not match")
    header[0] = cursor_over(start, header_bytes)
    count = read_u32_be(header)
    if count != expected:
        refuse(LIMIT, SECTION, at, b"the numbers of items of a block and its table differ")
    return count


cdef inline size_t _block_items(const Reference* reference, size_t done) noexcept nogil:
    """Return the number of items that the next block must have."""
    return min(<size_t>reference.per_block, reference.count - done)


cdef int _end_blocks(Reading* reading, Cursor* blocks) except -1 nogil:
    if left(blocks):
        refuse(BAD, SECTION, blocks.data - reading.data + blocks.at, b"unexpected bytes after the last block")
    return 0


cdef int _read_column(Reading* reading, Cursor* blocks, uint64_t size, unsigned int bits, size_t count,
                      int64_t* out) except -1 nogil:
    """Decode a column of exactly ``size`` bytes and ``count`` values; a 64-bit column of size 0 is all zeros."""
    cdef int64_t at = blocks.data - reading.data + blocks.at
    cdef const uint8_t* start = take(blocks, size)
    cdef Cursor cursor
    cdef size_t decoded = 0
    cdef Decoded outcome
    if start == NULL:
        refuse(TRUNCATED, SECTION, at, b"the table ends inside a column")
    if size == 0 and bits == 64:
        memset(out, 0, count * sizeof(int64_t))
        return 0
    cursor = cursor_over(start, size)
    outcome = delta_decode(&cursor, bits, out, count, &decoded)
    if outcome == UNSUPPORTED:
        refuse(FORMAT, SECTION, at, b"a column with an unknown block geometry")
    if outcome != DONE or decoded != count or left(&cursor):
        refuse(BAD, SECTION, at, b"a column does not have exactly the values of its block")
    return 0


cdef int _read_strings(Reading* reading, Reference* reference, PartitionItem* partition) except -1 nogil:
    cdef Cursor blocks = cursor_over(reference.data, reference.size), header
    cdef StringItem* strings = <StringItem*>new_items(reference.count, sizeof(StringItem))
    cdef const uint8_t* lengths
    cdef size_t done = 0, count, index
    cdef int64_t at
    cdef uint8_t width
    partition.strings = strings
    while done < reference.count:
        at = blocks.data - reading.data + blocks.at
        count = _open_block(reading, &blocks, 12, _block_items(reference, done), &header)
        take(&header, 1)
        width = read_u8(&header)
        if width != 8 and width != 16:
            refuse(FORMAT, SECTION, at + 5, b"string lengths have neither 8 nor 16 bits")
        lengths = take(&blocks, count * (width // 8))
        if lengths == NULL:
            refuse(TRUNCATED, SECTION, at, b"the table ends inside the string lengths")
        for index in range(count):
            if width == 8:
                strings[done].size = lengths[index]
            else:
                strings[done].size = (<uint32_t>lengths[2 * index] << 8) | lengths[2 * index + 1]
            strings[done].data = take(&blocks, strings[done].size)
            if strings[done].data == NULL:
                refuse(TRUNCATED, SECTION, at, b"the table ends inside the strings")
            done += 1
    _end_blocks(reading, &blocks)
    partition.string_count = reference.count
    return 0


cdef int _check_references(Reading* reading, const int64_t* values, size_t count, uint32_t limit,
                           int64_t at) except -1 nogil:
    cdef size_t index
    for index in range(count):
        if values[index] < 0 or values[index] >= limit:
            refuse(REFERENCE, SECTION, at, b"a reference to a symbol that does not exist")
    return 0


cdef int _read_mappings(Reading* reading, Reference* reference, PartitionItem* partition) except -1 nogil:
    cdef Cursor blocks = cursor_over(reference.data, reference.size), header
    cdef MappingItem* items = <MappingItem*>new_items(reference.count, sizeof(MappingItem))
    cdef int64_t* column[COLUMNS_MAX]
    cdef size_t done = 0, count, index
    cdef int64_t at
    partition.mappings = items
    for index in range(COLUMNS_MAX):
        column[index] = &reading.columns[index * BLOCK_ITEMS_MAX]
    while done < reference.count:
        at = blocks.data - reading.data + blocks.at
        count = _open_block(reading, &blocks, 32, _block_items(reference, done), &header)
        for index in range(COLUMNS_MAX):
            _read_column(reading, &blocks, read_u32_be(&header), 32 if index < 3 else 64, count, column[index])
        _check_references(reading, column[0], count, partition.string_count, at)
        _check_references(reading, column[1], count, partition.string_count, at)
        for index in range(count):
            items[done].filename = <uint32_t>column[0][index]
            items[done].build_id = <uint32_t>column[1][index]
            items[done].flags = <int32_t>column[2][index]
            items[done].memory_start = <uint64_t>column[3][index]
            items[done].memory_limit = <uint64_t>column[4][index]
            items[done].file_offset = <uint64_t>column[5][index]
            done += 1
    _end_blocks(reading, &blocks)
    partition.mapping_count = reference.count
    return 0


cdef int _read_functions(Reading* reading, Reference* reference, PartitionItem* partition) except -1 nogil:
    cdef Cursor blocks = cursor_over(reference.data, reference.size), header
    cdef FunctionItem* items = <FunctionItem*>new_items(reference.count, sizeof(FunctionItem))
    cdef int64_t* column[4]
    cdef size_t done = 0, count, index
    cdef int64_t at
    partition.functions = items
    for index in range(4):
        column[index] = &reading.columns[index * BLOCK_ITEMS_MAX]
    while done < reference.count:
        at = blocks.data - reading.data + blocks.at
        count = _open_block(reading, &blocks, 24, _block_items(reference, done), &header)
        for index in range(4):
            _read_column(reading, &blocks, read_u32_be(&header), 32, count, column[index])
            if index < 3:
                _check_references(reading, column[index], count, partition.string_count, at)
        for index in range(count):
            items[done].name = <uint32_t>column[0][index]
            items[done].system_name = <uint32_t>column[1][index]
            items[done].filename = <uint32_t>column[2][index]
            items[done].start_line = <int32_t>column[3][index]
            done += 1
    _end_blocks(reading, &blocks)
    partition.function_count = reference.count
    return 0


cdef int _read_locations(Reading* reading, Reference* reference, PartitionItem* partition) except -1 nogil:
    cdef Cursor blocks = cursor_over(reference.data, reference.size)
    cdef LocationItem* items = <LocationItem*>new_items(reference.count, sizeof(LocationItem))
    cdef size_t done = 0
    partition.locations = items
    while done < reference.count:
        done += _read_location_block(reading, &blocks, _block_items(reference, done), items + done, partition)
    _end_blocks(reading, &blocks)
    partition.location_count = reference.count
    return 0


cdef int64_t _read_location_block(Reading* reading, Cursor* blocks, size_t expected, LocationItem* items,
                                  PartitionItem* partition) except -1 nogil:
    """Read a block of locations and their lines; return the number of locations."""
    cdef Cursor header
    cdef int64_t at = blocks.data - reading.data + blocks.at
    cdef int64_t count = _open_block(reading, blocks, 28, expected, &header)
    cdef int64_t* numbers = reading.columns
    cdef uint32_t mapping_bytes = read_u32_be(&header)
    cdef uint32_t line_count = read_u32_be(&header)
    cdef uint32_t line_bytes = read_u32_be(&header)
    cdef uint32_t address_bytes = read_u32_be(&header)
    cdef uint32_t folded_bytes = read_u32_be(&header)
    cdef const uint8_t* line_counts
    cdef const uint8_t* folded
    cdef uint32_t next_line = partition.line_count
    cdef int64_t index
    _read_column(reading, blocks, mapping_bytes, 32, count, numbers)
    _check_references(reading, numbers, count, partition.mapping_count, at)
    line_counts = take(blocks, count)
    if line_counts == NULL:
        refuse(TRUNCATED, SECTION, at, b"the table ends inside the line counts")
    for index in range(count):
        items[index].mapping = <uint32_t>numbers[index]
        items[index].first_line = next_line
        items[index].line_count = line_counts[index]
        next_line += line_counts[index]
    if next_line - partition.line_count != line_count or line_count > <uint64_t>line_bytes * ITEMS_PER_BYTE_MAX:
        refuse(BAD, SECTION, at + 8, b"the number of lines is not the sum of the counts of locations")
    charge(reading, line_count, sizeof(LineItem), at + 8)
    _read_lines(reading, blocks, line_bytes, line_count, partition, at)
    _read_column(reading, blocks, address_bytes, 64, count, numbers)
    folded = take(blocks, folded_bytes)
    if folded == NULL:
        refuse(TRUNCATED, SECTION, at, b"the table ends inside the folded bits")
    for index in range(count):
        items[index].address = <uint64_t>numbers[index]
        items[index].is_folded = index // 8 < folded_bytes and (folded[index // 8] >> (index & 7)) & 1
    return count


cdef int _read_lines(Reading* reading, Cursor* blocks, uint64_t size, size_t count, PartitionItem* partition,
                     int64_t at) except -1 nogil:
    """Append the lines of a block (alternating functions and line numbers) to those of the partition."""
    cdef int64_t* numbers
    cdef LineItem* lines = <LineItem*>realloc(partition.lines, (partition.line_count + count + 1) * sizeof(LineItem))
    cdef size_t index
    if lines == NULL:
        with gil:
            raise MemoryError()
    partition.lines = lines
    lines += partition.line_count
    numbers = <int64_t*>new_items(2 * count, sizeof(int64_t))
    try:
        _read_column(reading, blocks, size, 32, 2 * count, numbers)
        for index in range(count):
            # In a partition without functions the references are dangling; a merge drops such lines.
            if partition.function_count:
                _check_references(reading, numbers + 2 * index, 1, partition.function_count, at)
            lines[index].function = <uint32_t>numbers[2 * index]
            lines[index].line = <int32_t>numbers[2 * index + 1]
    finally:
        free(numbers)
    partition.line_count += count
    return 0
