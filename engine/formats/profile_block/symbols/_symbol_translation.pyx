"""Copying of the symbols that kept rows reference from a source partition to the output partition of the same id.

Per row, new symbols are copied in the order that determines all numbers (see ``_symbol_merge_py``). Every source table
has an array of output numbers, so that a symbol is hashed once and a walk up a stack stops at the first node that an
earlier walk has visited.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memset

from engine.core._bad_object cimport REFERENCE, refuse
from engine.core._byte_buffers cimport Buffer, buffer_free, buffer_reserve, put_bytes, put_u32
from engine.formats.profile_block.symbols._output_partition cimport (
    OutputPartition, add_function, add_location, add_mapping, add_node, add_string, mark_stack,
)
from engine.formats.profile_block.symbols._symbol_arrays cimport (
    FunctionItem, LineItem, LocationItem, MappingItem, PartitionItem, node_of,
)

cdef enum:
    LINES_MAX = 255
    SCAN_FACTOR = 8     # up to this ratio of range to listed items, the range is scanned instead of sorting the items

# States in place of output numbers, which are smaller.
cdef uint32_t NEW = 0xFFFFFFFFu         # not listed or copied
cdef uint32_t MET = 0xFFFFFFFEu         # listed in this row
cdef uint32_t SEEN = 0xFFFFFFFDu        # a node whose locations are listed


cdef void pending_free(Pending* pending) noexcept nogil:
    buffer_free(&pending.stacks)
    buffer_free(&pending.locations)
    buffer_free(&pending.mappings)
    buffer_free(&pending.functions)
    buffer_free(&pending.ascending)
    buffer_free(&pending.path)


cdef int translation_open(Translation* translation, const PartitionItem* source,
                          OutputPartition* target) except -1 nogil:
    """Initialise an empty translation, to be freed with ``translation_free``."""
    cdef size_t count = (
        <size_t>source.string_count + source.mapping_count + source.function_count + source.location_count
        + source.node_count
    )
    cdef size_t node
    translation.source = source
    translation.target = target
    translation.memory = <uint32_t*>malloc((count + 1) * sizeof(uint32_t))
    if translation.memory == NULL:
        with gil:
            raise MemoryError()
    memset(translation.memory, 0xFF, count * sizeof(uint32_t))
    translation.strings = translation.memory
    translation.mappings = translation.strings + source.string_count
    translation.functions = translation.mappings + source.mapping_count
    translation.locations = translation.functions + source.function_count
    translation.nodes = translation.locations + source.location_count
    for node in range(source.node_count):
        if source.nodes[node].parent < 0:
            translation.nodes[node] = 0
    return 0


cdef void translation_free(Translation* translation) noexcept nogil:
    free(translation.memory)
    translation.memory = NULL


cdef int translate(Translation* translation, Pending* pending, const int64_t* ids, size_t count,
                   int64_t* out) except -1 nogil:
    """Write the output stack ids for those of a row and copy new symbols. Raises BadReference for an unknown stack."""
    cdef uint32_t* nodes = translation.nodes
    cdef size_t index
    cdef int64_t node
    pending.stacks.size = 0
    for index in range(count):
        node = node_of(translation.source, <uint64_t>ids[index])
        if node < 0:
            refuse(REFERENCE, b"profiles", -1, b"a row refers to a stack that is not in its partition's stack trees")
        out[index] = node
        if nodes[node] == NEW:
            nodes[node] = MET
            put_u32(&pending.stacks, <uint32_t>node)
    if pending.stacks.size:
        _copy_new(translation, pending)
    for index in range(count):
        out[index] = nodes[out[index]]
        mark_stack(translation.target, <uint32_t>out[index])
    return 0


cdef int _compare(const void* left, const void* right) noexcept nogil:
    cdef uint32_t one = (<const uint32_t*>left)[0], other = (<const uint32_t*>right)[0]
    return <int>(one > other) - <int>(one < other)


cdef int _sort(const Buffer* listed, const uint32_t* states, Buffer* ascending) except -1 nogil:
    """Write the listed numbers, whose state is MET, to another buffer in ascending order."""
    cdef const uint32_t* numbers = <const uint32_t*>listed.data
    cdef size_t count = listed.size // sizeof(uint32_t), index
    cdef uint32_t low = 0, high = 0, number
    cdef bint in_order = True
    ascending.size = 0
    if count == 0:
        return 0
    low = high = numbers[0]
    for index in range(1, count):
        in_order = in_order and numbers[index - 1] < numbers[index]
        low = min(low, numbers[index])
        high = max(high, numbers[index])
    if in_order or (high - low) // SCAN_FACTOR >= count:
        put_bytes(ascending, numbers, listed.size)
        if not in_order:
            qsort(ascending.data, count, sizeof(uint32_t), _compare)
        return 0
    buffer_reserve(ascending, listed.size)
    for index in range(low, <size_t>high + 1):
        if states[index] == MET:
            number = <uint32_t>index
            put_u32(ascending, number)
    return 0


cdef inline int _meet(uint32_t* states, uint32_t number, Buffer* listed) except -1 nogil:
    """Append a number to a list unless it was listed or copied before."""
    if states[number] == NEW:
        states[number] = MET
        put_u32(listed, number)
    return 0


cdef inline size_t _count(const Buffer* listed) noexcept nogil:
    return listed.size // sizeof(uint32_t)


cdef inline uint32_t _at(const Buffer* listed, size_t index) noexcept nogil:
    return (<const uint32_t*>listed.data)[index]


cdef int _copy_new(Translation* translation, Pending* pending) except -1 nogil:
    """Copy the symbols of the row's new stacks: strings, functions, mappings, locations, then the stacks."""
    cdef size_t index
    pending.locations.size = pending.mappings.size = pending.functions.size = 0
    _list_locations(translation, pending)
    _list_mappings_and_functions(translation, pending)
    _copy_strings(translation, pending)
    for index in range(_count(&pending.functions)):
        _copy_function(translation, _at(&pending.functions, index))
    for index in range(_count(&pending.mappings)):
        _copy_mapping(translation, _at(&pending.mappings, index))
    for index in range(_count(&pending.locations)):
        _copy_location(translation, _at(&pending.locations, index))
    for index in range(_count(&pending.stacks)):
        _insert(translation, pending, _at(&pending.stacks, index))
    return 0


cdef int _list_locations(Translation* translation, Pending* pending) except -1 nogil:
    """List the new locations of the stacks in ascending order, each leaf first."""
    cdef const PartitionItem* source = translation.source
    cdef size_t index
    cdef uint32_t node
    _sort(&pending.stacks, translation.nodes, &pending.ascending)
    for index in range(_count(&pending.ascending)):
        node = _at(&pending.ascending, index)
        while translation.nodes[node] >= MET:
            translation.nodes[node] = SEEN
            _meet(translation.locations, source.nodes[node].location, &pending.locations)
            node = <uint32_t>source.nodes[node].parent
    return 0


cdef int _list_mappings_and_functions(Translation* translation, Pending* pending) except -1 nogil:
    """List the mappings and functions of the new locations in ascending order."""
    cdef const PartitionItem* source = translation.source
    cdef const LocationItem* location
    cdef size_t index, line
    _sort(&pending.locations, translation.locations, &pending.ascending)
    for index in range(_count(&pending.ascending)):
        location = &source.locations[_at(&pending.ascending, index)]
        _meet(translation.mappings, location.mapping, &pending.mappings)
        if source.function_count:
            for line in range(location.line_count):
                _meet(translation.functions, source.lines[location.first_line + line].function, &pending.functions)
    return 0


cdef inline int _copy_string(Translation* translation, uint32_t number) except -1 nogil:
    if translation.strings[number] == NEW:
        translation.strings[number] = add_string(translation.target, translation.source.strings[number])
    return 0


cdef int _copy_strings(Translation* translation, Pending* pending) except -1 nogil:
    cdef const MappingItem* mapping
    cdef const FunctionItem* function
    cdef size_t index
    _sort(&pending.mappings, translation.mappings, &pending.ascending)
    for index in range(_count(&pending.ascending)):
        mapping = &translation.source.mappings[_at(&pending.ascending, index)]
        _copy_string(translation, mapping.build_id)
        _copy_string(translation, mapping.filename)
    _sort(&pending.functions, translation.functions, &pending.ascending)
    for index in range(_count(&pending.ascending)):
        function = &translation.source.functions[_at(&pending.ascending, index)]
        _copy_string(translation, function.name)
        _copy_string(translation, function.filename)
        _copy_string(translation, function.system_name)
    return 0


cdef int _copy_function(Translation* translation, uint32_t number) except -1 nogil:
    cdef FunctionItem item = translation.source.functions[number]
    item.name = translation.strings[item.name]
    item.system_name = translation.strings[item.system_name]
    item.filename = translation.strings[item.filename]
    translation.functions[number] = add_function(translation.target, item)
    return 0


cdef int _copy_mapping(Translation* translation, uint32_t number) except -1 nogil:
    cdef MappingItem item = translation.source.mappings[number]
    item.filename = translation.strings[item.filename]
    item.build_id = translation.strings[item.build_id]
    translation.mappings[number] = add_mapping(translation.target, item)
    return 0


cdef int _copy_location(Translation* translation, uint32_t number) except -1 nogil:
    """Copy a location, without its lines if the source has no functions."""
    cdef const PartitionItem* source = translation.source
    cdef LocationItem item = source.locations[number]
    cdef LineItem lines[LINES_MAX]
    cdef size_t index
    if source.function_count == 0:
        item.line_count = 0
    for index in range(item.line_count):
        lines[index] = source.lines[item.first_line + index]
        lines[index].function = translation.functions[lines[index].function]
    item.mapping = translation.mappings[item.mapping]
    translation.locations[number] = add_location(translation.target, item, lines)
    return 0


cdef int _insert(Translation* translation, Pending* pending, uint32_t node) except -1 nogil:
    """Insert the node of a stack, and its ancestors that are not inserted yet, into the output."""
    cdef const PartitionItem* source = translation.source
    cdef uint32_t above
    cdef size_t index
    pending.path.size = 0
    while translation.nodes[node] >= SEEN:
        put_u32(&pending.path, node)
        node = <uint32_t>source.nodes[node].parent
    above = translation.nodes[node]
    for index in range(_count(&pending.path), 0, -1):
        node = _at(&pending.path, index - 1)
        above = add_node(translation.target, above, translation.locations[source.nodes[node].location])
        translation.nodes[node] = above
    return 0
