"""Cutting decoded symbols down to what some stacks reach: see the .pyx."""

from engine.profiles._byte_buffers cimport Buffer
from engine.profiles._symbol_reader cimport SymbolTable

cdef int prune_symbols(SymbolTable table, Buffer* reached) except -1
