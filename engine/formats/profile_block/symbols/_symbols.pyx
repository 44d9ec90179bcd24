"""The compiled symbols codec; see ``engine.formats.profile_block.symbols.symbols``."""

from libc.stdint cimport int32_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from engine.core._byte_buffers cimport Buffer, buffer_free, put_zeros
from engine.formats.profile_block.symbols._symbol_arrays cimport (
    FunctionItem, LineItem, LocationItem, MappingItem, NodeItem, PartitionItem, StringItem, TreeItem,
)
from engine.formats.profile_block.symbols._symbol_reader cimport SymbolTable, read_symbols
from engine.formats.profile_block.symbols._symbol_writer cimport write_symbols

from engine.core.errors import LimitExceeded
from engine.formats.profile_block.model import Function, Location, Mapping, StackTree, SymbolPartition

cdef enum:
    LINES_MAX = 255


def decode_symbols(bytes data):
    """Return the partitions in ascending order of ids. Raises BadObject."""
    cdef SymbolTable table = read_symbols(data)
    cdef size_t index
    return [_partition_object(&table.partitions[index]) for index in range(table.count)]


cdef object _partition_object(PartitionItem* partition):
    cdef StringItem* strings = partition.strings
    cdef FunctionItem* functions = partition.functions
    cdef MappingItem* mappings = partition.mappings
    cdef size_t index
    return SymbolPartition(
        id=partition.id,
        strings=[
            (<const char*>strings[index].data)[:strings[index].size] for index in range(partition.string_count)
        ],
        mappings=[
            Mapping(
                mappings[index].filename, mappings[index].build_id, mappings[index].flags,
                mappings[index].memory_start, mappings[index].memory_limit, mappings[index].file_offset,
            )
            for index in range(partition.mapping_count)
        ],
        functions=[
            Function(
                functions[index].name, functions[index].system_name, functions[index].filename,
                functions[index].start_line,
            )
            for index in range(partition.function_count)
        ],
        locations=[_location_object(partition, index) for index in range(partition.location_count)],
        trees=[_tree_object(partition, &partition.trees[index]) for index in range(partition.tree_count)],
    )


cdef object _location_object(PartitionItem* partition, size_t number):
    cdef LocationItem* item = &partition.locations[number]
    cdef LineItem* lines = partition.lines + item.first_line
    cdef size_t index
    # In a partition without functions the references of lines are kept as signed numbers.
    pairs = tuple([(<int32_t>lines[index].function, lines[index].line) for index in range(item.line_count)])
    return Location(item.mapping, item.address, pairs, bool(item.is_folded))


cdef object _tree_object(PartitionItem* partition, TreeItem* tree):
    cdef NodeItem* nodes = partition.nodes + tree.first_node
    cdef uint32_t index
    parents = [-1]
    parents += [nodes[index].parent - <int32_t>tree.first_node for index in range(1, tree.node_count)]
    return StackTree(
        parents=parents,
        locations=[nodes[index].location for index in range(tree.node_count)],
        stack_count=tree.stack_count,
        max_nodes=tree.max_nodes,
    )


cdef class _PartitionArrays:
    """C arrays of the objects of a partition, for the encoder."""

    cdef PartitionItem item
    cdef object _strings

    def __cinit__(self):
        memset(&self.item, 0, sizeof(PartitionItem))

    def __dealloc__(self):
        free(self.item.strings)
        free(self.item.mappings)
        free(self.item.functions)
        free(self.item.locations)
        free(self.item.lines)
        free(self.item.nodes)
        free(self.item.trees)

    def __init__(self, partition):
        self.item.id = partition.id
        self._strings = list(partition.strings)
        self._take_strings()
        self._take_symbols(partition)
        self._take_locations(partition.locations)
        self._take_trees(partition.trees)

    cdef int _take_strings(self) except -1:
        cdef size_t index
        cdef bytes string
        self.item.strings = <StringItem*>_array(len(self._strings), sizeof(StringItem))
        for index, string in enumerate(self._strings):
            self.item.strings[index].data = <const unsigned char*><char*>string
            self.item.strings[index].size = len(string)
        self.item.string_count = len(self._strings)
        return 0

    cdef int _take_symbols(self, partition) except -1:
        cdef size_t index
        cdef MappingItem* mapping
        cdef FunctionItem* function
        self.item.mappings = <MappingItem*>_array(len(partition.mappings), sizeof(MappingItem))
        self.item.functions = <FunctionItem*>_array(len(partition.functions), sizeof(FunctionItem))
        for index, values in enumerate(partition.mappings):
            mapping = &self.item.mappings[index]
            mapping.filename, mapping.build_id, mapping.flags = values[0], values[1], values[2]
            mapping.memory_start, mapping.memory_limit, mapping.file_offset = values[3], values[4], values[5]
        for index, values in enumerate(partition.functions):
            function = &self.item.functions[index]
            function.name, function.system_name, function.filename = values[0], values[1], values[2]
            function.start_line = values[3]
        self.item.mapping_count = len(partition.mappings)
        self.item.function_count = len(partition.functions)
        return 0

    cdef int _take_locations(self, locations) except -1:
        cdef size_t index
        cdef uint32_t next_line = 0
        cdef LocationItem* location
        if any(len(values.lines) > LINES_MAX for values in locations):
            raise LimitExceeded("symbols", -1, f"a location has more than {LINES_MAX} lines")
        self.item.locations = <LocationItem*>_array(len(locations), sizeof(LocationItem))
        self.item.lines = <LineItem*>_array(sum([len(values.lines) for values in locations]), sizeof(LineItem))
        for index, values in enumerate(locations):
            location = &self.item.locations[index]
            location.mapping, location.address, location.is_folded = values.mapping, values.address, values.is_folded
            location.first_line = next_line
            location.line_count = len(values.lines)
            for function, line in values.lines:
                self.item.lines[next_line].function = <uint32_t><int32_t>function
                self.item.lines[next_line].line = line
                next_line += 1
        self.item.location_count = len(locations)
        self.item.line_count = next_line
        return 0

    cdef int _take_trees(self, trees) except -1:
        cdef size_t index, node
        cdef TreeItem* tree
        self.item.trees = <TreeItem*>_array(len(trees), sizeof(TreeItem))
        self.item.nodes = <NodeItem*>_array(sum([len(values.parents) for values in trees]), sizeof(NodeItem))
        for index, values in enumerate(trees):
            tree = &self.item.trees[index]
            tree.first_node = self.item.node_count
            tree.node_count = len(values.parents)
            tree.stack_count, tree.max_nodes = values.stack_count, values.max_nodes
            for node, (parent, location) in enumerate(zip(values.parents, values.locations, strict=True)):
                self.item.nodes[tree.first_node + node].parent = parent + <int32_t>tree.first_node
                self.item.nodes[tree.first_node + node].location = location
            self.item.node_count += tree.node_count
        self.item.tree_count = len(trees)
        return 0


cdef void* _array(size_t count, size_t size) except NULL:
    cdef void* items = calloc(count + 1, size)
    if items == NULL:
        raise MemoryError()
    return items


def encode_symbols(partitions):
    """Return a section of partitions. Raises LimitExceeded for a string or location beyond the format's limits."""
    cdef list arrays = [_PartitionArrays(each) for each in sorted(partitions, key=lambda each: each.id)]
    cdef Buffer out = Buffer(NULL, 0, 0)
    cdef Buffer views = Buffer(NULL, 0, 0)
    cdef size_t index
    try:
        put_zeros(&views, (len(arrays) + 1) * sizeof(PartitionItem))
        for index in range(len(arrays)):
            (<PartitionItem*>views.data)[index] = (<_PartitionArrays>arrays[index]).item
        write_symbols(&out, <PartitionItem*>views.data, len(arrays))
        return (<char*>out.data)[:out.size]
    finally:
        buffer_free(&out)
        buffer_free(&views)
