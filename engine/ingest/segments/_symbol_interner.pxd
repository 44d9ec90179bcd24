"""The symbols of a dataset in the making: see the .pyx."""

from libc.stdint cimport uint8_t, uint64_t

from engine.core._byte_buffers cimport Buffer
from engine.formats.pprof._columns cimport Column
from engine.formats.profile_block.symbols._output_partition cimport OutputPartition
from engine.formats.profile_block.symbols._symbol_arrays cimport StringItem


cdef struct Chunk:
    Chunk* before
    size_t size
    size_t used


cdef class SymbolInterner:
    cdef OutputPartition* partition
    cdef Chunk* chunks          # the bytes of the strings
    cdef Column strings         # of one profile: the dataset's number by its own
    cdef Column mappings
    cdef Column functions
    cdef Column locations

    cdef int intern(self, const Column* samples, const Column* tables, const StringItem* strings, size_t string_count,
                    Column* stack_ids) except -1 nogil
    cdef bint is_symbolized(self) noexcept nogil
    cdef bytes encoded(self)
    cdef int _take_strings(self, const Column* samples, const Column* tables, const StringItem* strings,
                           size_t string_count) except -1 nogil
    cdef int _take_mappings(self, const Column* tables) except -1 nogil
    cdef int _take_functions(self, const Column* tables) except -1 nogil
    cdef int _take_locations(self, const Column* tables) except -1 nogil
    cdef uint64_t _add_string(self, StringItem item) except? 0xFFFFFFFF nogil
