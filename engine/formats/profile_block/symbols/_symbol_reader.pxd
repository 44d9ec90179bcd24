"""Decoded symbols of a section; see ``_symbol_reader.pyx``."""

from engine.formats.profile_block.symbols._symbol_arrays cimport PartitionItem


cdef class SymbolTable:
    cdef PartitionItem* partitions
    cdef readonly size_t count
    cdef object _section        # owner of the bytes that the strings point into

    cdef void keep(self, object section)


cdef void free_partition(PartitionItem* partition) noexcept nogil
cdef SymbolTable read_symbols(bytes section)
