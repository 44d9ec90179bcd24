"""Pruning of the decoded symbols of a source to those that its selected rows reference, to save memory.

Numbers are replaced by their ranks, which preserves their order, so a merge of pruned symbols writes the same bytes as
one of whole symbols. Stack ids are those of the source; ``kept_nodes`` maps them to nodes.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from engine.core._byte_buffers cimport Buffer, buffer_free, put_bytes
from engine.formats.profile_block.symbols._symbol_arrays cimport (
    FunctionItem, LineItem, LocationItem, MappingItem, NodeItem, PartitionItem, StringItem, TreeItem,
)
from engine.formats.profile_block.symbols._symbol_reader cimport SymbolTable, free_partition


ctypedef struct Ranks:
    uint32_t* nodes         # 1 if kept, then the rank among the kept ones
    uint32_t* locations
    uint32_t* mappings
    uint32_t* functions
    uint32_t* strings


cdef int prune_symbols(SymbolTable table, Buffer* reached) except -1:
    """Keep only the symbols that the nodes marked in ``reached`` reference (a byte per node, a buffer per partition).

    The table then owns a copy of its strings and releases the section.
    """
    cdef Buffer text = Buffer(NULL, 0, 0)
    cdef PartitionItem pruned
    cdef size_t index, string
    cdef bytes kept
    try:
        for index in range(table.count):
            memset(&pruned, 0, sizeof(PartitionItem))
            try:
                with nogil:
                    _prune(&table.partitions[index], reached[index].data, &pruned, &text)
            except:
                free_partition(&pruned)
                raise
            free_partition(&table.partitions[index])
            table.partitions[index] = pruned
        kept = (<char*>text.data)[:text.size] if text.size else b""
    finally:
        buffer_free(&text)
    for index in range(table.count):
        for string in range(table.partitions[index].string_count):
            # So far the pointers were offsets into the collected text, which could be reallocated.
            table.partitions[index].strings[string].data = (
                <const uint8_t*><char*>kept + <size_t>table.partitions[index].strings[string].data
            )
    table.keep(kept)
    return 0


cdef void* _zeroed(size_t count, size_t size) except NULL nogil:
    cdef void* memory = calloc(count + 1, size)
    if memory == NULL:
        with gil:
            raise MemoryError()
    return memory


cdef int _prune(const PartitionItem* whole, const uint8_t* reached, PartitionItem* pruned, Buffer* text) except -1 nogil:
    cdef uint32_t* memory = <uint32_t*>_zeroed(
        <size_t>whole.node_count + whole.location_count + whole.mapping_count + whole.function_count
        + whole.string_count, sizeof(uint32_t)
    )
    cdef Ranks ranks
    ranks.nodes = memory
    ranks.locations = ranks.nodes + whole.node_count
    ranks.mappings = ranks.locations + whole.location_count
    ranks.functions = ranks.mappings + whole.mapping_count
    ranks.strings = ranks.functions + whole.function_count
    try:
        _mark_nodes(whole, reached, &ranks)
        _mark_symbols(whole, &ranks)
        pruned.id = whole.id
        pruned.node_count = _rank(ranks.nodes, whole.node_count)
        pruned.location_count = _rank(ranks.locations, whole.location_count)
        pruned.mapping_count = _rank(ranks.mappings, whole.mapping_count)
        pruned.function_count = _rank(ranks.functions, whole.function_count)
        pruned.string_count = _rank(ranks.strings, whole.string_count)
        _copy_nodes(whole, &ranks, pruned)
        _copy_locations(whole, &ranks, pruned)
        _copy_symbols(whole, &ranks, pruned)
        _copy_strings(whole, &ranks, pruned, text)
    finally:
        free(memory)
    return 0


cdef void _mark_nodes(const PartitionItem* whole, const uint8_t* reached, Ranks* ranks) noexcept nogil:
    """Mark the reached nodes and their ancestors; parents precede their children."""
    cdef uint32_t node
    for node in range(whole.node_count, 0, -1):
        if whole.nodes[node - 1].parent < 0:
            ranks.nodes[node - 1] = 1
        elif reached[node - 1] or ranks.nodes[node - 1]:
            ranks.nodes[node - 1] = 1
            ranks.nodes[whole.nodes[node - 1].parent] = 1
            ranks.locations[whole.nodes[node - 1].location] = 1


cdef void _mark_symbols(const PartitionItem* whole, Ranks* ranks) noexcept nogil:
    cdef uint32_t index, line
    cdef const LocationItem* location
    for index in range(whole.location_count):
        if ranks.locations[index]:
            location = &whole.locations[index]
            ranks.mappings[location.mapping] = 1
            if whole.function_count:
                for line in range(location.line_count):
                    ranks.functions[whole.lines[location.first_line + line].function] = 1
    for index in range(whole.mapping_count):
        if ranks.mappings[index]:
            ranks.strings[whole.mappings[index].build_id] = 1
            ranks.strings[whole.mappings[index].filename] = 1
    for index in range(whole.function_count):
        if ranks.functions[index]:
            ranks.strings[whole.functions[index].name] = 1
            ranks.strings[whole.functions[index].system_name] = 1
            ranks.strings[whole.functions[index].filename] = 1


cdef uint32_t _rank(uint32_t* marks, uint32_t count) noexcept nogil:
    """Replace marks by 1 + rank among the marked (0: not kept); return the number of marked ones."""
    cdef uint32_t index, kept = 0
    for index in range(count):
        if marks[index]:
            kept += 1
            marks[index] = kept
    return kept


cdef int _copy_nodes(const PartitionItem* whole, const Ranks* ranks, PartitionItem* pruned) except -1 nogil:
    cdef uint32_t node, at = 0
    pruned.nodes = <NodeItem*>_zeroed(pruned.node_count, sizeof(NodeItem))
    pruned.kept_nodes = <uint32_t*>_zeroed(pruned.node_count, sizeof(uint32_t))
    for node in range(whole.node_count):
        if ranks.nodes[node] == 0:
            continue
        pruned.kept_nodes[at] = node
        pruned.nodes[at].parent = -1
        if whole.nodes[node].parent >= 0:
            pruned.nodes[at].parent = <int32_t>ranks.nodes[whole.nodes[node].parent] - 1
            pruned.nodes[at].location = ranks.locations[whole.nodes[node].location] - 1
        at += 1
    pruned.trees = <TreeItem*>_zeroed(whole.tree_count, sizeof(TreeItem))
    memcpy(pruned.trees, whole.trees, whole.tree_count * sizeof(TreeItem))
    pruned.tree_count = whole.tree_count
    return 0


cdef int _copy_locations(const PartitionItem* whole, const Ranks* ranks, PartitionItem* pruned) except -1 nogil:
    cdef uint32_t index, line, at = 0, lines = 0
    cdef const LocationItem* location
    for index in range(whole.location_count):
        if ranks.locations[index] and whole.function_count:
            lines += whole.locations[index].line_count
    pruned.lines = <LineItem*>_zeroed(lines, sizeof(LineItem))
    pruned.locations = <LocationItem*>_zeroed(pruned.location_count, sizeof(LocationItem))
    for index in range(whole.location_count):
        if ranks.locations[index] == 0:
            continue
        location = &whole.locations[index]
        pruned.locations[at] = location[0]
        pruned.locations[at].mapping = ranks.mappings[location.mapping] - 1
        pruned.locations[at].first_line = pruned.line_count
        if whole.function_count == 0:
            pruned.locations[at].line_count = 0
        for line in range(pruned.locations[at].line_count):
            pruned.lines[pruned.line_count] = whole.lines[location.first_line + line]
            pruned.lines[pruned.line_count].function = ranks.functions[pruned.lines[pruned.line_count].function] - 1
            pruned.line_count += 1
        at += 1
    return 0


cdef int _copy_symbols(const PartitionItem* whole, const Ranks* ranks, PartitionItem* pruned) except -1 nogil:
    cdef uint32_t index
    cdef MappingItem* mapping
    cdef FunctionItem* function
    pruned.mappings = <MappingItem*>_zeroed(pruned.mapping_count, sizeof(MappingItem))
    pruned.functions = <FunctionItem*>_zeroed(pruned.function_count, sizeof(FunctionItem))
    for index in range(whole.mapping_count):
        if ranks.mappings[index]:
            mapping = &pruned.mappings[ranks.mappings[index] - 1]
            mapping[0] = whole.mappings[index]
            mapping.build_id = ranks.strings[mapping.build_id] - 1
            mapping.filename = ranks.strings[mapping.filename] - 1
    for index in range(whole.function_count):
        if ranks.functions[index]:
            function = &pruned.functions[ranks.functions[index] - 1]
            function[0] = whole.functions[index]
            function.name = ranks.strings[function.name] - 1
            function.system_name = ranks.strings[function.system_name] - 1
            function.filename = ranks.strings[function.filename] - 1
    return 0


cdef int _copy_strings(const PartitionItem* whole, const Ranks* ranks, PartitionItem* pruned, Buffer* text) except -1 nogil:
    """Append the kept strings to ``text``; their pointers are offsets into it until it is complete."""
    cdef uint32_t index
    cdef StringItem* item
    pruned.strings = <StringItem*>_zeroed(pruned.string_count, sizeof(StringItem))
    for index in range(whole.string_count):
        if ranks.strings[index]:
            item = &pruned.strings[ranks.strings[index] - 1]
            item.data = <const uint8_t*><size_t>text.size
            item.size = whole.strings[index].size
            put_bytes(text, whole.strings[index].data, item.size)
    return 0
