"""Merge decoded samples of one series; only inline C, not a module of its own."""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

cdef enum:
    STALE = 0
    NOT_A_NUMBER = 1
    NUMBER = 2

cdef extern from *:
    """
    #define LITHIFY_STALE_NAN 0x7FF0000000000002ULL
    #define LITHIFY_SIGN 0x8000000000000000ULL
    #define LITHIFY_INFINITY 0x7FF0000000000000ULL
    """
    const uint64_t STALE_NAN "LITHIFY_STALE_NAN"
    const uint64_t SIGN "LITHIFY_SIGN"
    const uint64_t INFINITE "LITHIFY_INFINITY"


ctypedef struct Samples:
    int64_t* times
    uint64_t* values
    size_t count
    size_t room


cdef inline int make_room(Samples* samples, size_t count) except -1 nogil:
    cdef size_t room
    cdef int64_t* times
    cdef uint64_t* values
    if count <= samples.room:
        return 0
    room = max(count, 2 * samples.room)
    times = <int64_t*>realloc(samples.times, 8 * room)
    if times != NULL:
        samples.times = times
    values = <uint64_t*>realloc(samples.values, 8 * room)
    if values != NULL:
        samples.values = values
    if times == NULL or values == NULL:
        with gil:
            raise MemoryError()
    samples.room = room
    return 0


cdef inline void free_samples(Samples* samples) noexcept nogil:
    free(samples.times)
    free(samples.values)


cdef inline int _class_of(uint64_t bits) noexcept nogil:
    if bits == STALE_NAN:
        return STALE
    return NOT_A_NUMBER if bits & (SIGN - 1) > INFINITE else NUMBER


cdef inline uint64_t _in_order(uint64_t bits) noexcept nogil:
    return ~bits if bits & SIGN else bits | SIGN


cdef inline uint64_t greater_value(uint64_t one, uint64_t other) noexcept nogil:
    """Return which of two different values is kept; the order is that of ``engine.lanes.tsdb.merge.chunk_cuts``."""
    cdef int first = _class_of(one), second = _class_of(other)
    if first != second:
        return one if first > second else other
    if first == NOT_A_NUMBER:
        return max(one, other)
    return one if _in_order(one) > _in_order(other) else other


cdef inline bint merge_two(const Samples* one, const Samples* other, Samples* merged, bint is_ours) noexcept nogil:
    """Merge by time into ``merged``, which must have room for all; return False at a conflict under another rule."""
    cdef size_t i = 0, j = 0, at = 0
    cdef int64_t time, other_time
    cdef uint64_t value
    while i < one.count and j < other.count:
        time, other_time = one.times[i], other.times[j]
        value = one.values[i]
        if time == other_time:
            if value != other.values[j]:
                if not is_ours:
                    return False
                value = greater_value(value, other.values[j])
            i += 1
            j += 1
        elif time < other_time:
            i += 1
        else:
            time, value = other_time, other.values[j]
            j += 1
        merged.times[at] = time
        merged.values[at] = value
        at += 1
    if i < one.count:
        memcpy(merged.times + at, one.times + i, 8 * (one.count - i))
        memcpy(merged.values + at, one.values + i, 8 * (one.count - i))
        at += one.count - i
    if j < other.count:
        memcpy(merged.times + at, other.times + j, 8 * (other.count - j))
        memcpy(merged.values + at, other.values + j, 8 * (other.count - j))
        at += other.count - j
    merged.count = at
    return True
