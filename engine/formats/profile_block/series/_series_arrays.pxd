"""C arrays of the series of a series index, for the decoder, the merge and the encoder. See ``_series_reader.pyx``."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from engine.formats.profile_block.symbols._symbol_arrays cimport StringItem


ctypedef struct LabelItem:
    StringItem name
    StringItem value


ctypedef struct SeriesItem:
    uint64_t fingerprint
    int64_t min_time_ns
    int64_t max_time_ns
    uint32_t position
    uint32_t ref
    uint32_t first_label
    uint32_t label_count


ctypedef struct RankedSeries:
    const SeriesItem* item
    const LabelItem* labels
