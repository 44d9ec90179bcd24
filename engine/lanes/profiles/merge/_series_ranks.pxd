"""Declarations of ``_series_ranks.pyx``."""

from engine.core._byte_buffers cimport Buffer

cdef int rank_series(list sources, Buffer* ranked) except -1
