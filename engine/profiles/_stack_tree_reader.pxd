"""Reading stack trees: see the .pyx."""

from engine.profiles._byte_buffers cimport Cursor
from engine.profiles._symbol_arrays cimport PartitionItem
from engine.profiles._symbol_ranges cimport Reading

cdef int read_trees(Reading* reading, Cursor* headers, size_t count, PartitionItem* partition) except -1 nogil
