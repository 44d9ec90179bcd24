"""Writing a series index: see the .pyx."""

from engine.profiles._byte_buffers cimport Buffer
from engine.profiles._series_arrays cimport LabelItem, SeriesItem

cdef int write_series_index(Buffer* out, const SeriesItem* series, size_t count, const LabelItem* labels) except -1 nogil
