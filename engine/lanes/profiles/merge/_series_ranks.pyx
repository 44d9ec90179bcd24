"""Rank the series of all sources, so that the merge of rows compares numbers instead of labels.

Series are ordered by labels, pair by pair (name, then value, bytewise; a prefix comes first), then by fingerprint. Equal
series of several sources have one rank.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport qsort
from libc.string cimport memcmp

from engine.core._byte_buffers cimport Buffer, buffer_free, put_bytes
from engine.lanes.profiles.merge._merge_source cimport MergeSource, SeriesNumber
from engine.formats.profile_block.series._series_arrays cimport LabelItem, RankedSeries, SeriesItem
from engine.formats.profile_block.symbols._symbol_arrays cimport StringItem


ctypedef struct Entry:
    RankedSeries series
    SeriesNumber* number


cdef int _compare_texts(const StringItem* one, const StringItem* other) noexcept nogil:
    cdef uint32_t size = min(one.size, other.size)
    cdef int order = memcmp(one.data, other.data, size) if size else 0
    if order:
        return order
    return <int>(one.size > other.size) - <int>(one.size < other.size)


cdef int _compare(const void* left, const void* right) noexcept nogil:
    cdef const RankedSeries* one = &(<const Entry*>left).series
    cdef const RankedSeries* other = &(<const Entry*>right).series
    cdef uint32_t label
    cdef int order
    for label in range(min(one.item.label_count, other.item.label_count)):
        order = _compare_texts(&one.labels[label].name, &other.labels[label].name)
        if order == 0:
            order = _compare_texts(&one.labels[label].value, &other.labels[label].value)
        if order:
            return order
    if one.item.label_count != other.item.label_count:
        return 1 if one.item.label_count > other.item.label_count else -1
    return <int>(one.item.fingerprint > other.item.fingerprint) - <int>(one.item.fingerprint < other.item.fingerprint)


cdef int rank_series(list sources, Buffer* ranked) except -1:
    """Set the rank of every series of the sources; append one RankedSeries per rank to ``ranked``."""
    cdef Buffer entries = Buffer(NULL, 0, 0)
    cdef Entry entry
    cdef Entry* all_entries
    cdef MergeSource source
    cdef SeriesItem* item
    cdef size_t index, count
    cdef uint32_t rank = 0
    try:
        for source in sources:
            for index in range(source.number_count()):
                entry.number = &source.numbers()[index]
                item = &source.table.items()[entry.number.index]
                entry.series.item = item
                entry.series.labels = source.table.labels_of(item)
                put_bytes(&entries, &entry, sizeof(Entry))
        count = entries.size // sizeof(Entry)
        all_entries = <Entry*>entries.data
        with nogil:
            if count:
                qsort(all_entries, count, sizeof(Entry), _compare)
            for index in range(count):
                if index == 0 or _compare(&all_entries[index - 1], &all_entries[index]) != 0:
                    put_bytes(ranked, &all_entries[index].series, sizeof(RankedSeries))
                    rank = <uint32_t>(ranked.size // sizeof(RankedSeries)) - 1
                all_entries[index].number.rank = rank
    finally:
        buffer_free(&entries)
    return 0
