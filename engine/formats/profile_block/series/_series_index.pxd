"""Conversion of a series in C arrays to a Python object, for the other compiled modules."""

from engine.formats.profile_block.series._series_arrays cimport LabelItem, SeriesItem

cdef object series_object(const SeriesItem* item, const LabelItem* labels)
