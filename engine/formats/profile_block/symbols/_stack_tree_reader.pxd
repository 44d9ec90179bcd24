"""Decoder of stack trees; see ``_stack_tree_reader.pyx``."""

from engine.core._byte_buffers cimport Cursor
from engine.formats.profile_block.symbols._symbol_arrays cimport PartitionItem
from engine.formats.profile_block.symbols._symbol_ranges cimport Reading

cdef int read_trees(Reading* reading, Cursor* headers, size_t count, PartitionItem* partition) except -1 nogil
