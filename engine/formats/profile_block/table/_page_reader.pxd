"""Decoder of the pages of a column chunk; see ``_page_reader.pyx``."""

from libc.stdint cimport uint8_t

from engine.core._byte_buffers cimport Buffer
from engine.formats.profile_block.table._integer_columns cimport Decoded
from engine.formats.profile_block.table._parquet_footer cimport ChunkItem, LeafShape


ctypedef struct Column:
    Buffer values       # int64_t, 16 bytes or StringItem per value that is not null
    Buffer def_levels   # a byte each; empty if the leaf and its parents are required
    Buffer rep_levels
    Buffer dictionary
    Buffer indexes
    size_t level_count
    size_t value_count

cdef void column_free(Column* column) noexcept nogil
cdef int read_chunk(const uint8_t* data, const ChunkItem* chunk, const LeafShape* shape, Column* column) except -1 nogil
