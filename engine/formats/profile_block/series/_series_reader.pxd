"""Decoded series of a section; see ``_series_reader.pyx``."""

from engine.core._byte_buffers cimport Buffer
from engine.formats.profile_block.series._series_arrays cimport LabelItem, SeriesItem


cdef class SeriesTable:
    cdef Buffer series
    cdef Buffer labels
    cdef Buffer symbols
    cdef object _section

    cdef inline size_t count(self) noexcept nogil:
        return self.series.size // sizeof(SeriesItem)

    cdef inline SeriesItem* items(self) noexcept nogil:
        return <SeriesItem*>self.series.data

    cdef inline LabelItem* labels_of(self, const SeriesItem* item) noexcept nogil:
        return (<LabelItem*>self.labels.data) + item.first_label


cdef SeriesTable read_series_index(bytes section)
