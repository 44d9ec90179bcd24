"""Encoder of a symbols section; see ``_symbol_writer.pyx``."""

from engine.core._byte_buffers cimport Buffer
from engine.formats.profile_block.symbols._symbol_arrays cimport PartitionItem

cdef int write_symbols(Buffer* out, PartitionItem* partitions, size_t count) except -1 nogil
