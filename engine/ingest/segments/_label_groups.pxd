"""The label groups of a normalised profile as C columns: see the .pyx."""

from libc.stdint cimport uint64_t

from engine.core._byte_buffers cimport Buffer
from engine.formats.pprof._columns cimport Column
from engine.ingest.segments._normal_profile cimport NormalProfile
from engine.formats.pprof._pprof cimport COLUMN_COUNT


ctypedef struct Links:
    Column groups           # by sample: the number of its group
    Column shared           # the labels of all groups: the key's ref in the low half, the value's in the high
    Column shared_starts    # by group
    Column spans            # by sample
    Column traces           # by sample: two words, the id's bytes
    Column has_trace        # by sample


ctypedef struct LabelGroup:
    Column columns[COLUMN_COUNT]    # samples; and the tables too, if the group is only a part of its profile
    Column spans
    Column traces
    Column has_trace
    Column locations        # by old id: the new one
    Column functions
    Column mappings


cdef void links_free(Links* links) noexcept nogil
cdef void label_group_free(LabelGroup* group) noexcept nogil
cdef bint knows_spans(const NormalProfile* profile) noexcept nogil
cdef int link_samples(Links* links, const NormalProfile* profile, uint64_t seed) except -1 nogil
cdef int gather(LabelGroup* group, const NormalProfile* profile, const Links* links, const Column* members,
                uint64_t seed) except -1 nogil
cdef int narrow(LabelGroup* group, const NormalProfile* profile) except -1 nogil
