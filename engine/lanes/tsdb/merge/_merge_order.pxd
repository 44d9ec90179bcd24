"""Order the series of several sources by their labels; only inline C, not a module of its own."""

from libc.stdint cimport int64_t, uint32_t

from engine.lanes.tsdb.merge._merge_pieces cimport Source


ctypedef struct Order:
    Source* sources
    uint32_t* heap  # sources with a next series
    size_t heap_size
    uint32_t* taken  # sources with the current series
    size_t taken_count


cdef inline bint _is_before(const Source* one, const Source* other) noexcept nogil:
    """Return whether the labels of the current series come strictly before another's; prefixes come first."""
    cdef size_t first = one.next_series - 1, second = other.next_series - 1
    cdef size_t size = 2 * <size_t>(one.label_starts[first + 1] - one.label_starts[first])
    cdef size_t other_size = 2 * <size_t>(other.label_starts[second + 1] - other.label_starts[second])
    cdef const uint32_t* refs = one.label_refs + 2 * one.label_starts[first]
    cdef const uint32_t* other_refs = other.label_refs + 2 * other.label_starts[second]
    cdef size_t position
    for position in range(min(size, other_size)):
        if refs[position] != other_refs[position]:
            return refs[position] < other_refs[position]
    return size < other_size


cdef inline int64_t exhausted_source(const Order* order) noexcept nogil:
    """Return the first source that needs its next series loaded, -1 if there is none."""
    cdef size_t number, taken
    cdef int64_t exhausted = -1
    cdef const Source* source
    for taken in range(order.taken_count):
        number = order.taken[taken]
        source = &order.sources[number]
        if (source.next_series >= source.series and not source.has_ended
                and (exhausted < 0 or <int64_t>number < exhausted)):
            exhausted = <int64_t>number
    return exhausted


cdef inline void take_next(Order* order) noexcept nogil:
    """Pop the sources with the next series, after pushing back those of the previous series."""
    cdef size_t taken
    cdef uint32_t number
    for taken in range(order.taken_count):
        number = order.taken[taken]
        if order.sources[number].next_series < order.sources[number].series:
            order.sources[number].next_series += 1
            _push(order, number)
    order.taken_count = 0
    while order.heap_size and (
            order.taken_count == 0
            or not _is_before(&order.sources[order.taken[0]], &order.sources[order.heap[0]])):
        order.taken[order.taken_count] = _pop(order)
        order.taken_count += 1


cdef inline void _push(Order* order, uint32_t number) noexcept nogil:
    cdef size_t place = order.heap_size, parent
    order.heap[place] = number
    order.heap_size += 1
    while place:
        parent = (place - 1) // 2
        if not _is_before(&order.sources[number], &order.sources[order.heap[parent]]):
            break
        order.heap[place] = order.heap[parent]
        order.heap[parent] = number
        place = parent


cdef inline uint32_t _pop(Order* order) noexcept nogil:
    """Pop the first source; the order of equal ones is that of ``engine.lanes.tsdb.merge.merge_heap``."""
    cdef size_t last = order.heap_size - 1, place = 0, child
    cdef uint32_t first = order.heap[0], sifted = order.heap[last]
    order.heap[0] = sifted
    while 2 * place + 1 < last:
        child = 2 * place + 1
        if child + 1 < last and _is_before(
                &order.sources[order.heap[child + 1]], &order.sources[order.heap[child]]):
            child += 1
        if not _is_before(&order.sources[order.heap[child]], &order.sources[sifted]):
            break
        order.heap[place] = order.heap[child]
        order.heap[child] = sifted
        place = child
    order.heap_size = last
    return first
