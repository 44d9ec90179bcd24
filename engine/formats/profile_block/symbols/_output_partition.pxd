"""Symbols of an output partition, with deduplicated tables; see ``_output_partition.pyx``."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.core._byte_buffers cimport Buffer
from engine.formats.profile_block.symbols._interning cimport Slots
from engine.formats.profile_block.symbols._symbol_arrays cimport (
    FunctionItem, LineItem, LocationItem, MappingItem, PartitionItem, StringItem, TreeItem,
)


ctypedef struct OutputPartition:
    uint64_t id
    uint64_t seed
    Buffer strings
    Buffer mappings
    Buffer functions
    Buffer locations
    Buffer lines
    Buffer nodes
    Buffer is_stack
    Slots string_slots
    Slots mapping_slots
    Slots function_slots
    Slots location_slots
    Slots node_slots
    TreeItem tree

cdef OutputPartition* new_output_partition(uint64_t partition_id, uint64_t seed) except NULL
cdef void free_output_partition(OutputPartition* partition) noexcept nogil
cdef uint32_t add_string(OutputPartition* partition, StringItem item) except? 0xFFFFFFFF nogil
cdef uint32_t add_mapping(OutputPartition* partition, MappingItem item) except? 0xFFFFFFFF nogil
cdef uint32_t add_function(OutputPartition* partition, FunctionItem item) except? 0xFFFFFFFF nogil
cdef uint32_t add_location(OutputPartition* partition, LocationItem item,
                           const LineItem* lines) except? 0xFFFFFFFF nogil
cdef uint32_t add_node(OutputPartition* partition, uint32_t parent, uint32_t location) except? 0xFFFFFFFF nogil
cdef PartitionItem as_arrays(OutputPartition* partition) noexcept nogil


cdef inline void mark_stack(OutputPartition* partition, uint32_t node) noexcept nogil:
    """Count a node once as the leaf of a stack."""
    if not partition.is_stack.data[node]:
        partition.is_stack.data[node] = 1
        partition.tree.stack_count += 1
