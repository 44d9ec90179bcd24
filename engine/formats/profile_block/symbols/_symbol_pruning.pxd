"""Pruning of decoded symbols; see ``_symbol_pruning.pyx``."""

from engine.core._byte_buffers cimport Buffer
from engine.formats.profile_block.symbols._symbol_reader cimport SymbolTable

cdef int prune_symbols(SymbolTable table, Buffer* reached) except -1
