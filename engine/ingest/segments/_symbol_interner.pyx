"""The compiled twin of ``interning``: one set of numbers for the symbols of many profiles, in C arrays.

Agrees with ``engine.ingest.segments.interning`` in every number. Strings are copied into chunks of its own, so that the
messages they came in can go.
"""

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from engine.core._byte_buffers cimport Buffer, buffer_free
from engine.formats.pprof._columns cimport Column, column_free, fill_zeros
from engine.ingest.segments._normal_profile cimport sample_count
from engine.formats.profile_block.symbols._output_partition cimport (
    OutputPartition, add_function, add_location, add_mapping, add_node, add_string, as_arrays, free_output_partition,
    mark_stack, new_output_partition,
)
from engine.formats.pprof._pprof cimport (
    ADDRESS, BUILD_ID, FILE_OFFSET, FOLDED, FUNCTION_FILENAME, FUNCTION_ID, FUNCTION_NAME, LINE_FUNCTION, LINE_NUMBER,
    LINE_STARTS, LOCATION_ID, LOCATION_IDS, LOCATION_MAPPING, LOCATION_STARTS, MAPPING_FILENAME, MAPPING_FLAGS,
    MAPPING_ID, MEMORY_LIMIT, MEMORY_START, START_LINE, SYSTEM_NAME, TYPES, UNITS,
)
from engine.formats.profile_block.symbols._symbol_arrays cimport (
    FunctionItem, LineItem, LocationItem, MappingItem, PartitionItem, StringItem,
)
from engine.formats.profile_block.symbols._symbol_writer cimport write_symbols

cdef enum:
    LINES_MAX = 255
    HAS_FUNCTIONS = 8
    CHUNK_BYTES_MIN = 4096
    CHUNK_BYTES_MAX = 262144


cdef class SymbolInterner:
    """Collects the symbols of normalised profiles in one partition (id 0, one stack tree)."""

    def __cinit__(self, uint64_t seed):
        self.partition = new_output_partition(0, seed)

    def __dealloc__(self):
        cdef Chunk* before
        free_output_partition(self.partition)
        while self.chunks != NULL:
            before = self.chunks.before
            free(self.chunks)
            self.chunks = before
        column_free(&self.strings)
        column_free(&self.mappings)
        column_free(&self.functions)
        column_free(&self.locations)

    cdef int intern(self, const Column* samples, const Column* tables, const StringItem* strings, size_t string_count,
                    Column* stack_ids) except -1 nogil:
        """Add what the tables hold; fill in the stack id of each of the samples."""
        cdef const uint64_t* starts = samples[LOCATION_STARTS].items
        cdef const uint64_t* ids = samples[LOCATION_IDS].items
        cdef size_t index, at
        cdef uint32_t node
        self._take_strings(samples, tables, strings, string_count)
        self._take_mappings(tables)
        self._take_functions(tables)
        self._take_locations(tables)
        fill_zeros(stack_ids, sample_count(samples))
        for index in range(stack_ids.count):
            node = 0
            for at in range(starts[index + 1], starts[index], -1):      # the leaf comes first, the root is above
                node = add_node(self.partition, node, <uint32_t>self.locations.items[ids[at - 1] - 1])
            mark_stack(self.partition, node)
            stack_ids.items[index] = node
        return 0

    cdef int _take_strings(self, const Column* samples, const Column* tables, const StringItem* strings,
                           size_t string_count) except -1 nogil:
        """Add the strings that symbols and sample types use, in the order of the profile's table."""
        cdef int[7] names = [
            FUNCTION_NAME, SYSTEM_NAME, FUNCTION_FILENAME, MAPPING_FILENAME, BUILD_ID, TYPES, UNITS
        ]
        cdef const Column* column
        cdef size_t index
        cdef int which
        fill_zeros(&self.strings, string_count)
        for which in range(7):
            column = &tables[names[which]]
            for index in range(column.count):
                self.strings.items[column.items[index]] = 1
        for index in range(string_count):
            if self.strings.items[index]:
                self.strings.items[index] = self._add_string(strings[index])
        return 0

    cdef uint64_t _add_string(self, StringItem item) except? 0xFFFFFFFF nogil:
        """Return the number of a string; the bytes of a new one are copied."""
        cdef size_t known = self.partition.strings.size, size
        cdef Chunk* chunk = self.chunks
        cdef uint8_t* copy
        cdef uint32_t number
        if chunk == NULL or chunk.size - chunk.used < item.size:
            size = CHUNK_BYTES_MIN if chunk == NULL else min(2 * chunk.size, <size_t>CHUNK_BYTES_MAX)
            size = max(size, <size_t>item.size)
            chunk = <Chunk*>malloc(sizeof(Chunk) + size)
            if chunk == NULL:
                with gil:
                    raise MemoryError()
            chunk.before, chunk.size, chunk.used = self.chunks, size, 0
            self.chunks = chunk
        number = add_string(self.partition, item)
        if self.partition.strings.size > known:
            copy = <uint8_t*>(chunk + 1) + chunk.used
            memcpy(copy, item.data, item.size)
            chunk.used += item.size
            (<StringItem*>self.partition.strings.data)[number].data = copy
        return number

    cdef int _take_mappings(self, const Column* tables) except -1 nogil:
        cdef MappingItem item
        cdef size_t index
        memset(&item, 0, sizeof(MappingItem))
        fill_zeros(&self.mappings, tables[MAPPING_ID].count)
        for index in range(self.mappings.count):
            item.filename = <uint32_t>self.strings.items[tables[MAPPING_FILENAME].items[index]]
            item.build_id = <uint32_t>self.strings.items[tables[BUILD_ID].items[index]]
            item.flags = <int32_t>tables[MAPPING_FLAGS].items[index]
            item.memory_start = tables[MEMORY_START].items[index]
            item.memory_limit = tables[MEMORY_LIMIT].items[index]
            item.file_offset = tables[FILE_OFFSET].items[index]
            self.mappings.items[index] = add_mapping(self.partition, item)
        return 0

    cdef int _take_functions(self, const Column* tables) except -1 nogil:
        cdef FunctionItem item
        cdef size_t index
        fill_zeros(&self.functions, tables[FUNCTION_ID].count)
        for index in range(self.functions.count):
            item.name = <uint32_t>self.strings.items[tables[FUNCTION_NAME].items[index]]
            item.system_name = <uint32_t>self.strings.items[tables[SYSTEM_NAME].items[index]]
            item.filename = <uint32_t>self.strings.items[tables[FUNCTION_FILENAME].items[index]]
            item.start_line = <int32_t>tables[START_LINE].items[index]
            self.functions.items[index] = add_function(self.partition, item)
        return 0

    cdef int _take_locations(self, const Column* tables) except -1 nogil:
        cdef LocationItem item
        cdef LineItem lines[LINES_MAX]
        cdef size_t index, line, first, count
        fill_zeros(&self.locations, tables[LOCATION_ID].count)
        for index in range(self.locations.count):
            first = tables[LINE_STARTS].items[index]
            count = min(tables[LINE_STARTS].items[index + 1] - first, <size_t>LINES_MAX)
            for line in range(count):
                lines[line].function = <uint32_t>self.functions.items[tables[LINE_FUNCTION].items[first + line] - 1]
                lines[line].line = <int32_t>tables[LINE_NUMBER].items[first + line]
            item.address = tables[ADDRESS].items[index]
            item.mapping = <uint32_t>self.mappings.items[tables[LOCATION_MAPPING].items[index] - 1]
            item.first_line = 0
            item.line_count = <uint16_t>count
            item.is_folded = tables[FOLDED].items[index] != 0
            self.locations.items[index] = add_location(self.partition, item, lines)
        return 0

    cdef bint is_symbolized(self) noexcept nogil:
        """Tell whether the mapping of every location has functions."""
        cdef PartitionItem view = as_arrays(self.partition)
        cdef size_t index
        for index in range(view.location_count):
            if not view.mappings[view.locations[index].mapping].flags & HAS_FUNCTIONS:
                return False
        return True

    cdef bytes encoded(self):
        """Return the symbols section."""
        cdef PartitionItem view = as_arrays(self.partition)
        cdef Buffer out = Buffer(NULL, 0, 0)
        try:
            with nogil:
                write_symbols(&out, &view, 1)
            return (<char*>out.data)[:out.size]
        finally:
            buffer_free(&out)
