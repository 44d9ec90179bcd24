"""Translation of symbols of a source partition to an output partition; see ``_symbol_translation.pyx``."""

from libc.stdint cimport int64_t, uint32_t

from engine.core._byte_buffers cimport Buffer
from engine.formats.profile_block.symbols._output_partition cimport OutputPartition
from engine.formats.profile_block.symbols._symbol_arrays cimport PartitionItem


ctypedef struct Pending:
    Buffer stacks           # uint32_t each: new items of a row, in order of first occurrence
    Buffer locations
    Buffer mappings
    Buffer functions
    Buffer ascending
    Buffer path


ctypedef struct Translation:
    const PartitionItem* source
    OutputPartition* target
    uint32_t* memory        # one allocation for the five tables below
    uint32_t* strings       # output numbers by source number, or a state
    uint32_t* mappings
    uint32_t* functions
    uint32_t* locations
    uint32_t* nodes


cdef void pending_free(Pending* pending) noexcept nogil
cdef int translation_open(Translation* translation, const PartitionItem* source,
                          OutputPartition* target) except -1 nogil
cdef void translation_free(Translation* translation) noexcept nogil
cdef int translate(Translation* translation, Pending* pending, const int64_t* ids, size_t count,
                   int64_t* out) except -1 nogil
