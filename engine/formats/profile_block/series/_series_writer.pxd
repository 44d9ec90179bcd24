"""Encoder of a series index; see ``_series_writer.pyx``."""

from engine.core._byte_buffers cimport Buffer
from engine.formats.profile_block.series._series_arrays cimport LabelItem, SeriesItem

cdef int write_series_index(Buffer* out, const SeriesItem* series, size_t count, const LabelItem* labels) except -1 nogil
