"""Encoder of a symbols section (version 3) from C arrays ("Symbols" in ``docs/reference/formats/profile-block.md``).

The data of a partition is in the order strings, mappings, functions, locations, stacks; its header has another order.
The bytes are identical to those of the reference writer, including the deviations that the document describes.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from engine.core._bad_object cimport LIMIT, refuse
from engine.core._byte_buffers cimport (
    Buffer, buffer_free, buffer_reserve, put_bytes, put_u8, put_u16_be, put_u32_be, put_u64_be, put_zeros,
    store_u32_be,
)
from engine.core._checksum_kernels cimport crc32c_of
from engine.formats.profile_block.table._integer_columns cimport delta_encode
from engine.formats.profile_block.symbols._symbol_arrays cimport (
    FunctionItem, LineItem, LocationItem, MappingItem, PartitionItem, StringItem, TreeItem,
)

cdef extern from "csrc/packed_bits.h":
    unsigned int lithify_group_write(uint8_t* out, const uint32_t* values) noexcept nogil

cdef enum:
    VERSION = 3
    BLOCK_ITEMS = 1024
    LINES_MAX = 255
    INDEX_HEADER_BYTES = 32
    STRING_BYTES_MAX = 65535
    GROUP_VARINT = 1


ctypedef struct Table:
    uint64_t offset
    uint64_t size
    uint32_t crc
    uint32_t count

ctypedef int (*block_writer)(Buffer* out, PartitionItem* partition, size_t start, size_t count,
                             int64_t* numbers) except -1 nogil


cdef int write_symbols(Buffer* out, PartitionItem* partitions, size_t count) except -1 nogil:
    """Write a section with these partitions (ascending by id) to the empty buffer ``out``."""
    cdef Buffer headers = Buffer(NULL, 0, 0)
    cdef int64_t* numbers = <int64_t*>malloc(2 * LINES_MAX * BLOCK_ITEMS * sizeof(int64_t))
    cdef size_t index, start, footer
    if numbers == NULL:
        with gil:
            raise MemoryError()
    try:
        put_u32_be(&headers, <uint32_t>count)
        for index in range(count):
            _write_partition(out, &headers, &partitions[index], numbers)
        start = out.size
        _put_magic(out)
        put_zeros(out, 8)
        put_u64_be(out, headers.size)
        put_u64_be(out, INDEX_HEADER_BYTES)
        put_bytes(out, headers.data, headers.size)
        put_u32_be(out, crc32c_of(out.data + start, out.size - start))
        footer = out.size
        _put_magic(out)
        put_u64_be(out, start)
        put_u32_be(out, 0)
        put_u32_be(out, crc32c_of(out.data + footer, 20))
    finally:
        buffer_free(&headers)
        free(numbers)
    return 0


cdef int _put_magic(Buffer* out) except -1 nogil:
    put_bytes(out, b"sym1", 4)
    return put_u32_be(out, VERSION)


cdef int _write_partition(Buffer* out, Buffer* headers, PartitionItem* partition, int64_t* numbers) except -1 nogil:
    cdef Table strings, mappings, functions, locations
    cdef size_t index
    _write_table(out, &strings, partition, partition.string_count, numbers, _write_strings)
    _write_table(out, &mappings, partition, partition.mapping_count, numbers, _write_mappings)
    _write_table(out, &functions, partition, partition.function_count, numbers, _write_functions)
    _write_table(out, &locations, partition, partition.location_count, numbers, _write_locations)
    put_u64_be(headers, partition.id)
    put_u32_be(headers, partition.tree_count)
    for index in range(partition.tree_count):
        _write_tree(out, headers, partition, index)
    _put_reference(headers, &locations, 28, 1)
    _put_reference(headers, &mappings, 32, 3)
    _put_reference(headers, &functions, 24, 2)
    _put_reference(headers, &strings, 12, 4)
    return 0


cdef int _write_table(Buffer* out, Table* table, PartitionItem* partition, uint32_t count, int64_t* numbers,
                      block_writer write_block) except -1 nogil:
    """Append all blocks of a table and set their position in ``table``."""
    cdef size_t start = 0
    table.offset = out.size
    table.count = count
    while start < count:
        write_block(out, partition, start, min(<size_t>BLOCK_ITEMS, count - start), numbers)
        start += BLOCK_ITEMS
    table.size = out.size - table.offset
    table.crc = crc32c_of(out.data + table.offset, table.size)
    return 0


cdef int _put_reference(Buffer* headers, const Table* table, unsigned int header_bytes,
                        unsigned int format) except -1 nogil:
    put_u64_be(headers, table.offset)
    put_u32_be(headers, <uint32_t>table.size)
    put_u32_be(headers, table.crc)
    put_u32_be(headers, table.count)
    put_u32_be(headers, BLOCK_ITEMS)
    put_u16_be(headers, header_bytes)
    put_u16_be(headers, format)
    return put_zeros(headers, 4)


cdef int _seal_header(Buffer* out, size_t start, unsigned int header_bytes) except -1 nogil:
    """Store the checksum at the end of a block header."""
    store_u32_be(out.data + start + header_bytes - 4, crc32c_of(out.data + start, header_bytes - 4))
    return 0


cdef int _write_strings(Buffer* out, PartitionItem* partition, size_t start, size_t count,
                        int64_t* numbers) except -1 nogil:
    cdef StringItem* strings = partition.strings + start
    cdef size_t header = out.size, index
    cdef bint wide = False
    for index in range(count):
        if strings[index].size > STRING_BYTES_MAX:
            refuse(LIMIT, b"symbols", -1, b"a string exceeds the maximum of 65535 bytes")
        wide = wide or strings[index].size > 255
    put_zeros(out, 12)
    store_u32_be(out.data + header, <uint32_t>count)
    out.data[header + 5] = 16 if wide else 8
    for index in range(count):
        if wide:
            put_u16_be(out, strings[index].size)
        else:
            put_u8(out, <uint8_t>strings[index].size)
    # The reference writer leaves the contents of its buffer here: byte 4 of the lengths.
    if out.size - header > 12 + 4:
        out.data[header + 4] = out.data[header + 12 + 4]
    _seal_header(out, header, 12)
    for index in range(count):
        put_bytes(out, strings[index].data, strings[index].size)
    return 0


cdef uint32_t _write_column(Buffer* out, const int64_t* numbers, size_t count,
                            unsigned int bits) except? 0xFFFFFFFF nogil:
    """Append a column; return its size."""
    cdef size_t start = out.size
    delta_encode(out, numbers, count, bits)
    return <uint32_t>(out.size - start)


cdef uint32_t _write_rare_column(Buffer* out, const int64_t* numbers, size_t count) except? 0xFFFFFFFF nogil:
    """Append a 64-bit column unless all its values are 0; return its size."""
    cdef size_t index
    for index in range(count):
        if numbers[index]:
            return _write_column(out, numbers, count, 64)
    return 0


cdef int _write_mappings(Buffer* out, PartitionItem* partition, size_t start, size_t count,
                         int64_t* numbers) except -1 nogil:
    cdef MappingItem* items = partition.mappings + start
    cdef size_t header = out.size, index, column
    cdef uint32_t size
    put_zeros(out, 32)
    store_u32_be(out.data + header, <uint32_t>count)
    for column in range(6):
        for index in range(count):
            if column == 0:
                numbers[index] = items[index].filename
            elif column == 1:
                numbers[index] = items[index].build_id
            elif column == 2:
                numbers[index] = items[index].flags
            elif column == 3:
                numbers[index] = <int64_t>items[index].memory_start
            elif column == 4:
                numbers[index] = <int64_t>items[index].memory_limit
            else:
                numbers[index] = <int64_t>items[index].file_offset
        size = _write_column(out, numbers, count, 32) if column < 3 else _write_rare_column(out, numbers, count)
        store_u32_be(out.data + header + 4 + 4 * column, size)
    return _seal_header(out, header, 32)


cdef int _write_functions(Buffer* out, PartitionItem* partition, size_t start, size_t count,
                          int64_t* numbers) except -1 nogil:
    cdef FunctionItem* items = partition.functions + start
    cdef size_t header = out.size, index, column
    cdef uint32_t size
    put_zeros(out, 24)
    store_u32_be(out.data + header, <uint32_t>count)
    for column in range(4):
        for index in range(count):
            if column == 0:
                numbers[index] = items[index].name
            elif column == 1:
                numbers[index] = items[index].system_name
            elif column == 2:
                numbers[index] = items[index].filename
            else:
                numbers[index] = items[index].start_line
        size = _write_column(out, numbers, count, 32)
        store_u32_be(out.data + header + 4 + 4 * column, size)
    return _seal_header(out, header, 24)


cdef int _write_locations(Buffer* out, PartitionItem* partition, size_t start, size_t count,
                          int64_t* numbers) except -1 nogil:
    cdef LocationItem* items = partition.locations + start
    cdef LineItem* lines
    cdef size_t header = out.size, index, line, total = 0
    cdef uint32_t size
    put_zeros(out, 28)
    store_u32_be(out.data + header, <uint32_t>count)
    for index in range(count):
        numbers[index] = items[index].mapping
    size = _write_column(out, numbers, count, 32)
    store_u32_be(out.data + header + 4, size)
    for index in range(count):
        put_u8(out, <uint8_t>items[index].line_count)
        lines = partition.lines + items[index].first_line
        for line in range(items[index].line_count):
            numbers[2 * total] = lines[line].function
            numbers[2 * total + 1] = lines[line].line
            total += 1
    store_u32_be(out.data + header + 8, <uint32_t>total)
    size = _write_column(out, numbers, 2 * total, 32)
    store_u32_be(out.data + header + 12, size)
    for index in range(count):
        numbers[index] = <int64_t>items[index].address
    size = _write_rare_column(out, numbers, count)
    store_u32_be(out.data + header + 16, size)
    store_u32_be(out.data + header + 20, _write_folded(out, items, count))
    return _seal_header(out, header, 28)


cdef uint32_t _write_folded(Buffer* out, const LocationItem* items, size_t count) except? 0xFFFFFFFF nogil:
    """Append the bitmap of folded locations unless there are none; return its size."""
    cdef size_t index, start = out.size
    cdef bint any_folded = False
    for index in range(count):
        any_folded = any_folded or items[index].is_folded
    if not any_folded:
        return 0
    put_zeros(out, count // 8 + 1)
    for index in range(count):
        if items[index].is_folded:
            out.data[start + index // 8] |= <uint8_t>(1 << (index & 7))
    return <uint32_t>(out.size - start)


cdef int _write_tree(Buffer* out, Buffer* headers, PartitionItem* partition, size_t number) except -1 nogil:
    """Append the nodes of a tree to ``out`` and its chunk header to ``headers``."""
    cdef TreeItem* tree = &partition.trees[number]
    cdef size_t start = out.size
    cdef uint32_t node = 0, parent, previous = 0
    cdef uint32_t values[4]
    cdef unsigned int pair
    buffer_reserve(out, 9 * <size_t>tree.node_count + 17)
    while node < tree.node_count:
        memset(values, 0, sizeof(values))
        for pair in range(2):
            if node == tree.node_count:
                break
            parent = <uint32_t>(partition.nodes[tree.first_node + node].parent - <int64_t>tree.first_node)
            if node == 0:
                parent = <uint32_t>-1
            values[2 * pair] = ((parent - previous) << 1) ^ (0 - ((parent - previous) >> 31))
            values[2 * pair + 1] = partition.nodes[tree.first_node + node].location
            previous = parent
            node += 1
        out.size += lithify_group_write(out.data + out.size, values)
    put_u64_be(headers, start)
    put_u64_be(headers, out.size - start)
    put_u64_be(headers, partition.id)
    put_u16_be(headers, <uint32_t>number)
    put_u16_be(headers, GROUP_VARINT)
    put_u32_be(headers, 0)
    put_u32_be(headers, tree.stack_count)
    put_u32_be(headers, tree.node_count)
    put_u32_be(headers, 0)
    put_u32_be(headers, tree.max_nodes)
    put_zeros(headers, 12)
    return put_u32_be(headers, crc32c_of(out.data + start, out.size - start))
