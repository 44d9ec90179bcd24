"""Decoder of the stack trees of a partition into one array of nodes.

The format (group varints) is "Symbols" in ``docs/reference/formats/profile-block.md``.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy, memset

from engine.core._bad_object cimport BAD, FORMAT, LIMIT, REFERENCE, TRUNCATED, refuse
from engine.core._byte_buffers cimport Cursor, cursor_over, left, read_u8, read_u32_be, read_u64_be, take
from engine.formats.profile_block.symbols._symbol_arrays cimport NodeItem, PartitionItem, TreeItem
from engine.formats.profile_block.symbols._symbol_ranges cimport Reading, charge, check_range, new_items

cdef extern from "csrc/packed_bits.h":
    unsigned int lithify_group_read(uint8_t control, const uint8_t* at, uint32_t* values) noexcept nogil
    unsigned int lithify_group_size(uint8_t control) noexcept nogil

cdef enum:
    CHUNK_BYTES = 64
    GROUP_VARINT = 1

cdef const char* SECTION = b"symbols"


ctypedef struct Chunk:
    int64_t at
    const uint8_t* data
    uint64_t size
    uint32_t stack_count
    uint32_t node_count
    uint32_t max_nodes


cdef int read_trees(Reading* reading, Cursor* headers, size_t count, PartitionItem* partition) except -1 nogil:
    """Read the stack trees of a partition into one array of nodes."""
    cdef Chunk chunk
    cdef NodeItem* nodes
    cdef TreeItem* trees = <TreeItem*>new_items(count, sizeof(TreeItem))
    cdef size_t index
    partition.trees = trees
    for index in range(count):
        _read_chunk_header(reading, headers, &chunk)
        if chunk.node_count == 0 or chunk.node_count > chunk.size // 2:
            refuse(LIMIT, SECTION, chunk.at + 36, b"the stack nodes do not fit in their bytes, or there are none")
        if index and chunk.max_nodes != trees[0].max_nodes:
            refuse(BAD, SECTION, chunk.at + 44, b"the chunks of a partition differ in max nodes")
        if count > 1 and chunk.max_nodes == 0:
            refuse(BAD, SECTION, chunk.at + 44, b"several chunks without nodes")
        if <uint64_t>partition.node_count + chunk.node_count > 0x7FFFFFFF:
            refuse(LIMIT, SECTION, chunk.at + 36, b"more than 2^31 stack nodes")
        charge(reading, chunk.node_count, sizeof(NodeItem), chunk.at + 36)
        nodes = <NodeItem*>realloc(partition.nodes, (partition.node_count + chunk.node_count) * sizeof(NodeItem))
        if nodes == NULL:
            with gil:
                raise MemoryError()
        partition.nodes = nodes
        trees[index].first_node = partition.node_count
        trees[index].node_count = chunk.node_count
        trees[index].stack_count = chunk.stack_count
        trees[index].max_nodes = chunk.max_nodes
        _read_nodes(reading, &chunk, nodes + partition.node_count, partition.node_count, partition.location_count)
        partition.node_count += chunk.node_count
        partition.tree_count += 1
    return 0


cdef int _read_chunk_header(Reading* reading, Cursor* headers, Chunk* chunk) except -1 nogil:
    cdef Cursor header = cursor_over(headers.data + headers.at, CHUNK_BYTES)
    cdef uint64_t offset
    chunk.at = headers.data - reading.data + headers.at
    take(headers, CHUNK_BYTES)
    offset = read_u64_be(&header)
    chunk.size = read_u64_be(&header)
    take(&header, 11)
    if read_u8(&header) != GROUP_VARINT:
        refuse(FORMAT, SECTION, chunk.at + 27, b"an unknown encoding of stacks")
    take(&header, 4)
    chunk.stack_count = read_u32_be(&header)
    chunk.node_count = read_u32_be(&header)
    take(&header, 4)
    chunk.max_nodes = read_u32_be(&header)
    take(&header, 12)
    check_range(reading, offset, chunk.size, read_u32_be(&header), chunk.at)
    chunk.data = reading.data + offset
    return 0


cdef int _read_nodes(Reading* reading, Chunk* chunk, NodeItem* nodes, int32_t first,
                     uint32_t location_count) except -1 nogil:
    """Decode the nodes of a chunk. Parents must precede their children, so that walks to the root end."""
    cdef Cursor cursor = cursor_over(chunk.data, chunk.size)
    cdef uint32_t values[4]
    cdef uint8_t padded[16]
    cdef const uint8_t* group
    cdef uint32_t parent = 0, zigzag
    cdef uint32_t node = 0
    cdef unsigned int pair, size
    cdef uint8_t control
    while node < chunk.node_count:
        control = read_u8(&cursor)
        size = lithify_group_size(control)
        group = take(&cursor, size)
        if group == NULL:
            refuse(TRUNCATED, SECTION, chunk.data - reading.data + cursor.at, b"the stacks end before the last node")
        if left(&cursor) < 16:
            memset(padded, 0, 16)
            memcpy(padded, group, size)
            group = padded
        lithify_group_read(control, group, values)
        for pair in range(2):
            if node == chunk.node_count:
                break
            zigzag = values[2 * pair]
            parent += (zigzag >> 1) ^ (0 - (zigzag & 1))
            if node and (parent >= node or values[2 * pair + 1] >= location_count):
                refuse(REFERENCE, SECTION, chunk.data - reading.data + cursor.at,
                       b"a stack node refers to a later node or to an unknown location")
            if node == 0 and <int32_t>parent != -1:
                refuse(REFERENCE, SECTION, chunk.data - reading.data, b"the first stack node is not a root")
            nodes[node].parent = -1 if node == 0 else <int32_t>(parent + <uint32_t>first)
            nodes[node].location = values[2 * pair + 1]
            node += 1
    if left(&cursor):
        refuse(BAD, SECTION, chunk.data - reading.data + cursor.at, b"unexpected bytes after the last stack node")
    return 0
