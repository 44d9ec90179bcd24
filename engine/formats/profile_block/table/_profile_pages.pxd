"""Reader of the row groups of a profile table; see ``_profile_pages.pyx``."""

from libc.stdint cimport int64_t

from engine.core._byte_buffers cimport Buffer
from engine.formats.profile_block.table._page_reader cimport Column
from engine.formats.profile_block.table._parquet_footer cimport GroupItem
from engine.formats.profile_block.table._row_columns cimport RowBlock


cdef class ProfilePages:
    cdef object _read           # (offset in the section, size) -> bytes
    cdef bytes _whole           # the section, or None if it is streamed
    cdef int64_t _size
    cdef Buffer _groups
    cdef Column _columns[21]
    cdef readonly bint understood

    cdef inline GroupItem* group(self, size_t number) noexcept nogil:
        return &(<GroupItem*>self._groups.data)[number]

    cdef bytes section(self)
    cdef bytes _range(self, int64_t start, int64_t size)
    cdef bint _open(self) except -1
    cdef bint _places_fit(self) noexcept
    cdef void _release(self)
    cdef size_t group_count(self) noexcept nogil
    cdef bint read_group(self, size_t number, RowBlock block) except -1
