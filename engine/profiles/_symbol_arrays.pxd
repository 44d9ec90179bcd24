"""Symbols of a partition as C arrays: what decoding gives, translation reads and encoding takes.

Pointers into strings belong to whoever owns the bytes (the section's bytes for a decoded partition, an interning table
for an output). Parents of nodes are indexes into the partition's one array of nodes, in which the trees lie back to
back; a root's parent is -1.
"""

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t


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
    uint32_t string_count
    uint32_t mapping_count
    uint32_t function_count
    uint32_t location_count
    uint32_t line_count
    uint32_t node_count
    uint32_t tree_count
