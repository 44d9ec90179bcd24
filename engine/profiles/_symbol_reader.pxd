"""Decoded symbols of a section: see the .pyx."""

from libc.stdint cimport uint64_t

from engine.profiles._symbol_arrays cimport PartitionItem


cdef class SymbolTable:
    cdef PartitionItem* partitions
    cdef readonly size_t count
    cdef object _section

    cdef PartitionItem* find(self, uint64_t partition_id) noexcept nogil


cdef SymbolTable read_symbols(bytes section)
