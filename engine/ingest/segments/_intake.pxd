"""One profile on its way into a segment: see the .pyx."""

from libc.stdint cimport uint8_t, uint64_t

from engine.core._byte_buffers cimport Buffer
from engine.formats.pprof._columns cimport Column
from engine.ingest.segments._label_groups cimport LabelGroup, Links
from engine.ingest.segments._normal_profile cimport NormalProfile, Workspace
from engine.formats.pprof._pprof cimport Tables


cdef class Intake:
    cdef Tables tables
    cdef NormalProfile normal
    cdef Workspace work
    cdef Links links
    cdef LabelGroup group
    cdef Column members         # of the group
    cdef Column by_group        # the samples of group 0, then those of group 1 ...
    cdef Column group_starts
    cdef Buffer raw_strings     # StringItem each
    cdef Buffer digested
    cdef uint64_t seed
    cdef bint is_small          # so that other threads had better wait
    cdef bytes held             # what the strings point into

    cdef int clear(self) except -1
    cdef bytes string(self, uint64_t ref)
    cdef list label_groups(self, external)
    cdef int gather(self, list groups, bint is_part) except -1
    cdef int _read_message(self, const uint8_t* data, size_t size) except -1 nogil
    cdef int _normalise(self) except -1 nogil
    cdef int _read_profile(self, profile) except -1
    cdef int _read_column(self, int name, array) except -1
    cdef int _check_columns(self) except -1
    cdef int _check_starts(self, int name, size_t count, int items) except -1
    cdef _free(self)
    cdef int _put_columns(self) except -1
    cdef int _sort_by_group(self) except -1 nogil
    cdef object _group_pairs(self, size_t number)
