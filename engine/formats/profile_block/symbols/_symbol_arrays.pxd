"""C arrays of the symbols of a partition, for the decoder, the translation and the encoder.

Pointers of strings point into bytes of their owner (the section of a decoded partition, the sources of an output).
Parents are indexes into the partition's array of nodes, in which its trees are consecutive; the parent of a root is -1.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


ctypedef struct StringItem:
    const uint8_t* data
    uint32_t size


ctypedef struct MappingItem:
    uint64_t memory_start
    uint64_t memory_limit
    uint64_t file_offset
    uint32_t filename
    uint32_t build_id
    int32_t flags


ctypedef struct FunctionItem:
    uint32_t name
    uint32_t system_name
    uint32_t filename
    int32_t start_line


ctypedef struct LineItem:
    uint32_t function
    int32_t line


ctypedef struct LocationItem:
    uint64_t address
    uint32_t mapping
    uint32_t first_line
    uint16_t line_count
    uint8_t is_folded


ctypedef struct NodeItem:
    int32_t parent
    uint32_t location


ctypedef struct TreeItem:
    uint32_t first_node
    uint32_t node_count
    uint32_t stack_count
    uint32_t max_nodes


ctypedef struct PartitionItem:
    uint64_t id
    StringItem* strings
    MappingItem* mappings
    FunctionItem* functions
    LocationItem* locations
    LineItem* lines
    NodeItem* nodes
    TreeItem* trees
    uint32_t* kept_nodes        # of a pruned partition: the ascending source numbers of its nodes; else NULL
    uint32_t string_count
    uint32_t mapping_count
    uint32_t function_count
    uint32_t location_count
    uint32_t line_count
    uint32_t node_count
    uint32_t tree_count


cdef inline int64_t node_of(const PartitionItem* partition, uint64_t stack_id) noexcept nogil:
    """Return the node of a stack id (tree * max nodes + node), -1 if there is none."""
    cdef uint64_t tree = 0, node = stack_id
    cdef size_t low, high, middle
    if partition.tree_count and partition.trees[0].max_nodes and stack_id >= partition.trees[0].max_nodes:
        tree = stack_id // partition.trees[0].max_nodes
        node = stack_id % partition.trees[0].max_nodes
    if tree >= partition.tree_count or node >= partition.trees[tree].node_count:
        return -1
    node += partition.trees[tree].first_node
    if partition.kept_nodes == NULL:
        return <int64_t>node
    low, high = 0, partition.node_count
    while low < high:
        middle = (low + high) // 2
        if partition.kept_nodes[middle] < node:
            low = middle + 1
        else:
            high = middle
    return <int64_t>low if low < partition.node_count and partition.kept_nodes[low] == node else -1


cdef inline PartitionItem* find_partition(PartitionItem* partitions, size_t count, uint64_t partition_id) noexcept nogil:
    """Return the partition with this id among ascending partitions, or NULL."""
    cdef size_t low = 0, high = count, middle
    while low < high:
        middle = (low + high) // 2
        if partitions[middle].id < partition_id:
            low = middle + 1
        else:
            high = middle
    return &partitions[low] if low < count and partitions[low].id == partition_id else NULL
