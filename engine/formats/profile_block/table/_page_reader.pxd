"""Decoding the pages of one column chunk: see the .pyx."""

from libc.stdint cimport uint8_t

from engine.core._byte_buffers cimport Buffer
from engine.formats.profile_block.table._integer_columns cimport Decoded
from engine.formats.profile_block.table._parquet_footer cimport ChunkItem, LeafShape


ctypedef struct Column:
    Buffer values       # int64_t, 16 bytes or StringItem each, those that are not null
    Buffer def_levels   # a byte each; empty where the leaf is required all the way
    Buffer rep_levels
    Buffer dictionary
    Buffer indexes
    size_t level_count
    size_t value_count

cdef void column_free(Column* column) noexcept nogil
cdef int read_chunk(const uint8_t* data, const ChunkItem* chunk, const LeafShape* shape, Column* column) except -1 nogil
