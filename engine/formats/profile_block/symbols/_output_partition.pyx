"""Symbols of an output partition: deduplicated strings, mappings, functions, locations and stacks.

Numbers are assigned in order of insertion, which therefore determines the encoded bytes. Strings are pointers into the
source sections, which must outlive the partition.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memset

from engine.core._bad_object cimport LIMIT, refuse
from engine.core._byte_buffers cimport Buffer, buffer_free, put_bytes, put_u8
from engine.formats.profile_block.symbols._interning cimport (
    Slots, intern_string, lithify_hash_bytes, lithify_mix, slots_fill, slots_free, slots_make_room, tag_of,
)
from engine.formats.profile_block.symbols._symbol_arrays cimport (
    FunctionItem, LineItem, LocationItem, MappingItem, NodeItem, PartitionItem, StringItem, TreeItem,
)

cdef enum:
    MAPPING_KEY_BYTES = 36      # MappingItem without the padding at its end
    NODES_MAX = 0x7FFFFFFF


cdef OutputPartition* new_output_partition(uint64_t partition_id, uint64_t seed) except NULL:
    """Return a partition with the empty string and the root node, to be freed with ``free_output_partition``."""
    cdef OutputPartition* partition = <OutputPartition*>calloc(1, sizeof(OutputPartition))
    cdef NodeItem root
    cdef StringItem empty
    if partition == NULL:
        raise MemoryError()
    partition.id = partition_id
    partition.seed = seed
    partition.tree.max_nodes = <uint32_t>0xFFFFFFFFu
    root.parent = -1
    root.location = 0
    empty.data = <const uint8_t*>b""
    empty.size = 0
    try:
        intern_string(&partition.string_slots, &partition.strings, seed, empty)
        put_bytes(&partition.nodes, &root, sizeof(NodeItem))
        put_u8(&partition.is_stack, 0)
    except:
        free_output_partition(partition)
        raise
    return partition


cdef void free_output_partition(OutputPartition* partition) noexcept nogil:
    """Free a partition (which may be NULL) and its tables."""
    if partition == NULL:
        return
    buffer_free(&partition.strings)
    buffer_free(&partition.mappings)
    buffer_free(&partition.functions)
    buffer_free(&partition.locations)
    buffer_free(&partition.lines)
    buffer_free(&partition.nodes)
    buffer_free(&partition.is_stack)
    slots_free(&partition.string_slots)
    slots_free(&partition.mapping_slots)
    slots_free(&partition.function_slots)
    slots_free(&partition.location_slots)
    slots_free(&partition.node_slots)
    free(partition)


cdef uint32_t add_string(OutputPartition* partition, StringItem item) except? 0xFFFFFFFF nogil:
    return intern_string(&partition.string_slots, &partition.strings, partition.seed, item)


cdef uint32_t _add_plain(Slots* slots, Buffer* items, uint64_t seed, const void* item, size_t size,
                         size_t key_size) except? 0xFFFFFFFF nogil:
    """Return the number of an item, whose first ``key_size`` bytes are its key; append it if it is new."""
    cdef uint32_t tag = tag_of(lithify_hash_bytes(seed, <const uint8_t*>item, key_size))
    cdef size_t position, index
    slots_make_room(slots)
    position = tag & slots.mask
    while slots.entries[position]:
        if slots.entries[position] >> 32 == tag:
            index = <uint32_t>slots.entries[position] - 1
            if memcmp(items.data + index * size, item, key_size) == 0:
                return <uint32_t>index
        position = (position + 1) & slots.mask
    index = items.size // size
    put_bytes(items, item, size)
    slots_fill(slots, position, tag, index)
    return <uint32_t>index


cdef uint32_t add_mapping(OutputPartition* partition, MappingItem item) except? 0xFFFFFFFF nogil:
    return _add_plain(&partition.mapping_slots, &partition.mappings, partition.seed, &item, sizeof(MappingItem),
                      MAPPING_KEY_BYTES)


cdef uint32_t add_function(OutputPartition* partition, FunctionItem item) except? 0xFFFFFFFF nogil:
    return _add_plain(&partition.function_slots, &partition.functions, partition.seed, &item, sizeof(FunctionItem),
                      sizeof(FunctionItem))


cdef uint32_t add_location(OutputPartition* partition, LocationItem item,
                           const LineItem* lines) except? 0xFFFFFFFF nogil:
    """Return the number of a location with these lines; append it if it is new. Sets ``item.first_line``."""
    cdef uint64_t hash = lithify_mix(partition.seed, item.address)
    cdef size_t line_bytes = item.line_count * sizeof(LineItem)
    cdef size_t position, index
    cdef uint32_t tag
    cdef LocationItem* known
    hash = lithify_mix(hash, (<uint64_t>item.mapping << 32) | (<uint64_t>item.line_count << 1) | item.is_folded)
    tag = tag_of(lithify_hash_bytes(hash, <const uint8_t*>lines, line_bytes))
    slots_make_room(&partition.location_slots)
    position = tag & partition.location_slots.mask
    while partition.location_slots.entries[position]:
        if partition.location_slots.entries[position] >> 32 == tag:
            index = <uint32_t>partition.location_slots.entries[position] - 1
            known = &(<LocationItem*>partition.locations.data)[index]
            if (
                known.mapping == item.mapping and known.address == item.address
                and known.line_count == item.line_count and known.is_folded == item.is_folded
                and (line_bytes == 0 or memcmp(
                    partition.lines.data + known.first_line * sizeof(LineItem), lines, line_bytes) == 0)
            ):
                return <uint32_t>index
        position = (position + 1) & partition.location_slots.mask
    index = partition.locations.size // sizeof(LocationItem)
    item.first_line = <uint32_t>(partition.lines.size // sizeof(LineItem))
    put_bytes(&partition.lines, lines, line_bytes)
    put_bytes(&partition.locations, &item, sizeof(LocationItem))
    slots_fill(&partition.location_slots, position, tag, index)
    return <uint32_t>index


cdef uint32_t add_node(OutputPartition* partition, uint32_t parent, uint32_t location) except? 0xFFFFFFFF nogil:
    """Return the child of ``parent`` for a location; append it if it is new.

    Most nodes have one child, which usually follows its parent in the array: such a child is found there, and only the
    others are in the table.
    """
    cdef const NodeItem* nodes = <const NodeItem*>partition.nodes.data
    cdef size_t count = partition.nodes.size // sizeof(NodeItem), next_to = <size_t>parent + 1, position, index
    cdef Slots* slots = &partition.node_slots
    cdef uint32_t tag
    if next_to == count:    # the last node: it has no children yet
        return _append_node(partition, parent, location)
    if nodes[next_to].location == location and nodes[next_to].parent == <int32_t>parent:
        return <uint32_t>next_to
    slots_make_room(slots)
    tag = tag_of(lithify_mix(partition.seed, (<uint64_t>parent << 32) | location))
    position = tag & slots.mask
    while slots.entries[position]:
        if slots.entries[position] >> 32 == tag:
            index = <uint32_t>slots.entries[position] - 1
            if nodes[index].location == location and nodes[index].parent == <int32_t>parent:
                return <uint32_t>index
        position = (position + 1) & slots.mask
    index = _append_node(partition, parent, location)
    slots_fill(slots, position, tag, index)
    return <uint32_t>index


cdef inline uint32_t _append_node(OutputPartition* partition, uint32_t parent, uint32_t location) except? 0xFFFFFFFF nogil:
    cdef size_t index = partition.nodes.size // sizeof(NodeItem)
    cdef NodeItem node
    if index >= NODES_MAX:
        refuse(LIMIT, b"symbols", -1, b"the stack tree has more than 2^31 nodes: flush earlier, or split by series")
    node.parent = <int32_t>parent
    node.location = location
    put_bytes(&partition.nodes, &node, sizeof(NodeItem))
    put_u8(&partition.is_stack, 0)
    return <uint32_t>index


cdef PartitionItem as_arrays(OutputPartition* partition) noexcept nogil:
    """Return a view for the encoder, which the next insertion invalidates."""
    cdef PartitionItem view
    memset(&view, 0, sizeof(PartitionItem))
    partition.tree.first_node = 0
    partition.tree.node_count = <uint32_t>(partition.nodes.size // sizeof(NodeItem))
    view.id = partition.id
    view.strings = <StringItem*>partition.strings.data
    view.mappings = <MappingItem*>partition.mappings.data
    view.functions = <FunctionItem*>partition.functions.data
    view.locations = <LocationItem*>partition.locations.data
    view.lines = <LineItem*>partition.lines.data
    view.nodes = <NodeItem*>partition.nodes.data
    view.trees = &partition.tree
    view.string_count = <uint32_t>(partition.strings.size // sizeof(StringItem))
    view.mapping_count = <uint32_t>(partition.mappings.size // sizeof(MappingItem))
    view.function_count = <uint32_t>(partition.functions.size // sizeof(FunctionItem))
    view.location_count = <uint32_t>(partition.locations.size // sizeof(LocationItem))
    view.line_count = <uint32_t>(partition.lines.size // sizeof(LineItem))
    view.node_count = partition.tree.node_count
    view.tree_count = 1
    return view
