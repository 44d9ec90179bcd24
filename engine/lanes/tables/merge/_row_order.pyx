"""Compiled implementation of ``engine.lanes.tables.merge.row_order``."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy

import numpy as np

from engine.lanes.tables.merge.key_arrays import Keys

cdef enum:
    HEAD_BYTES = 8

ctypedef struct Run:
    const uint64_t* heads
    const uint8_t* data
    const int64_t* offsets
    int64_t at
    int64_t end

ctypedef struct Part:
    const uint8_t* data
    const int64_t* offsets
    const uint8_t* valid
    bint escaped


cdef inline int compare(Run* first, int64_t row, Run* second, int64_t other) noexcept nogil:
    """Return the order of two keys: less than 0, 0, or more."""
    cdef uint64_t left = first.heads[row], right = second.heads[other]
    cdef int64_t size, other_size
    cdef int order
    if left != right:
        return -1 if left < right else 1
    if first.offsets == NULL:
        return 0
    size = first.offsets[row + 1] - first.offsets[row] - HEAD_BYTES
    other_size = second.offsets[other + 1] - second.offsets[other] - HEAD_BYTES
    if size > 0 and other_size > 0:
        order = memcmp(first.data + first.offsets[row] + HEAD_BYTES, second.data + second.offsets[other] + HEAD_BYTES,
                       size if size < other_size else other_size)
        if order:
            return order
    # No key is a prefix of another one, so only equal keys get here.
    return -1 if size < other_size else size > other_size


cdef inline int64_t escaped_size(const uint8_t* data, int64_t size) noexcept nogil:
    cdef int64_t total = size + 2
    cdef const uint8_t* end = data + size
    cdef const uint8_t* found = data
    while found < end:
        found = <const uint8_t*>memchr(found, 0, end - found)
        if found == NULL:
            break
        total += 1
        found += 1
    return total


cdef inline uint8_t* put_escaped(uint8_t* to, const uint8_t* data, int64_t size) noexcept nogil:
    cdef int64_t place
    for place in range(size):
        to[0] = data[place]
        to += 1
        if not data[place]:
            to[0] = 0xFF
            to += 1
    to[0] = 0
    to[1] = 0
    return to + 2


cdef void measure(Part* parts, int count, int64_t rows, int64_t* offsets) noexcept nogil:
    cdef int64_t row, size
    cdef int number
    offsets[0] = 0
    for row in range(rows):
        size = 0
        for number in range(count):
            if parts[number].valid != NULL:
                size += 1
                if not parts[number].valid[row]:
                    continue
            if parts[number].escaped:
                size += escaped_size(parts[number].data + parts[number].offsets[row],
                                     parts[number].offsets[row + 1] - parts[number].offsets[row])
            else:
                size += parts[number].offsets[row + 1] - parts[number].offsets[row]
        offsets[row + 1] = offsets[row] + size


cdef void fill(Part* parts, int count, int64_t rows, const int64_t* offsets, uint8_t* data,
               uint64_t* heads) noexcept nogil:
    cdef int64_t row, size, place
    cdef int number
    cdef uint8_t* to = data
    cdef const uint8_t* key
    cdef uint64_t head
    for row in range(rows):
        for number in range(count):
            if parts[number].valid != NULL:
                to[0] = 1 if parts[number].valid[row] else 0
                to += 1
                if not parts[number].valid[row]:
                    continue
            size = parts[number].offsets[row + 1] - parts[number].offsets[row]
            if parts[number].escaped:
                to = put_escaped(to, parts[number].data + parts[number].offsets[row], size)
            else:
                memcpy(to, parts[number].data + parts[number].offsets[row], size)
                to += size
        key = data + offsets[row]
        size = offsets[row + 1] - offsets[row]
        head = 0
        for place in range(HEAD_BYTES):
            head = head << 8 | (key[place] if place < size else 0)
        heads[row] = head


cdef bint are_offsets(const int64_t[::1] offsets, int64_t rows, int64_t size) noexcept nogil:
    """Return whether offsets bound ``rows`` values in ``size`` bytes and do not descend."""
    cdef int64_t row
    cdef bint is_descending = False
    if offsets.shape[0] != rows + 1:
        return False
    for row in range(rows):
        is_descending |= offsets[row + 1] < offsets[row]
    return offsets[0] >= 0 and not is_descending and offsets[rows] <= size


def join_parts(int64_t rows, parts):
    """Return the keys of ``rows`` rows, the joined parts of each column. Raises ValueError for invalid offsets."""
    cdef int number, count = len(parts)
    cdef Part* found = <Part*>malloc((count + 1) * sizeof(Part))
    cdef const uint8_t[::1] bytes_view, valid_view
    cdef const int64_t[::1] offsets_view
    cdef int64_t[::1] offsets
    cdef uint8_t[::1] data
    cdef uint64_t[::1] heads
    if found == NULL:
        raise MemoryError
    try:
        for number, part in enumerate(parts):
            bytes_view, offsets_view = part.data, part.offsets
            if not are_offsets(offsets_view, rows, bytes_view.shape[0]):
                raise ValueError("the offsets of a part do not match its rows and bytes")
            found[number].data = &bytes_view[0] if bytes_view.shape[0] else NULL
            found[number].offsets = &offsets_view[0]
            found[number].valid = NULL
            found[number].escaped = part.escaped
            if part.valid is not None and rows:
                valid_view = part.valid
                if valid_view.shape[0] != rows:
                    raise ValueError("a part of the keys has a different number of rows")
                found[number].valid = &valid_view[0]
        made_offsets = np.empty(rows + 1, np.int64)
        offsets = made_offsets
        measure(found, count, rows, &offsets[0])
        made_data, made_heads = np.empty(offsets[rows], np.uint8), np.empty(rows, np.uint64)
        data, heads = made_data, made_heads
        if offsets[rows]:
            fill(found, count, rows, &offsets[0], &data[0], &heads[0])
        else:
            made_heads[:] = 0
    finally:
        free(found)
    return Keys(made_heads, made_data, made_offsets)


cdef int open_run(keys, Run* run, int64_t first) except -1:
    """Point to the arrays of keys, which the caller must keep alive; ``Keys`` has checked the offsets."""
    if type(keys) is not Keys:
        raise TypeError("unchecked keys")
    cdef const uint64_t[::1] heads = keys.heads
    cdef const uint8_t[::1] data = keys.data
    cdef const int64_t[::1] offsets = keys.offsets
    run.end = heads.shape[0]
    run.at = first
    run.heads = &heads[0] if run.end else NULL
    run.data = &data[0] if data.shape[0] else NULL
    run.offsets = NULL
    if offsets.shape[0]:
        run.offsets = &offsets[0]
    return 0


def first_unsorted(keys):
    """Return the first row whose key is less than that of the previous row, -1 if there is none.

    Raises ValueError for invalid offsets.
    """
    cdef Run run
    cdef int64_t row, found = -1
    open_run(keys, &run, 0)
    with nogil:
        for row in range(1, run.end):
            if compare(&run, row, &run, row - 1) < 0:
                found = row
                break
    return found


cdef inline bint before(Run* runs, int first, int second) noexcept nogil:
    """Return whether a run's next row comes before another's."""
    cdef int order = compare(&runs[first], runs[first].at, &runs[second], runs[second].at)
    return first < second if order == 0 else order < 0


cdef void sift(Run* runs, int* heap, int size, int place) noexcept nogil:
    """Sift the run at a position of the heap down."""
    cdef int child, moved = heap[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and before(runs, heap[child + 1], heap[child]):
            child += 1
        if not before(runs, heap[child], moved):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = moved


cdef inline bint goes_first(Run* runs, int winner, int64_t row, int other) noexcept nogil:
    """Return whether a later row of the winner still comes before the next row of another run."""
    cdef int order = compare(&runs[winner], row, &runs[other], runs[other].at)
    return winner < other if order == 0 else order < 0


cdef int64_t gallop(Run* runs, int winner, int other, int64_t end) noexcept nogil:
    """Return the first row of the winner, at most ``end``, that does not come before the other run's next row."""
    cdef int64_t low = runs[winner].at, step = 1, high, middle
    # Row ``low`` goes first: gallop forward, then search between the last two positions.
    high = low + 1
    while high < end and goes_first(runs, winner, high, other):
        low = high
        step *= 2
        high = low + step
    if high > end:
        high = end
    while low + 1 < high:
        middle = (low + high) // 2
        if goes_first(runs, winner, middle, other):
            low = middle
        else:
            high = middle
    return high


def merge_runs(runs, int64_t[::1] positions, const uint8_t[::1] goes_on, int64_t limit):
    """Merge sorted runs from ``positions`` on and advance these; rows with equal keys come in the order of runs.

    Returns (run, first row, rows) of the segments of the result. Ends after ``limit`` rows, when a run that continues
    (``goes_on``) is exhausted, or when all are. Raises ValueError for invalid positions or offsets.
    """
    cdef int count = len(runs), size = 0, number, winner, other
    cdef int64_t end, room, at
    cdef Run* opened = <Run*>malloc((count + 1) * sizeof(Run))
    cdef int* heap = <int*>malloc((count + 1) * sizeof(int))
    cdef int64_t segments = 0, capacity = 1024
    cdef bint is_over = False
    if opened == NULL or heap == NULL or positions.shape[0] != count or goes_on.shape[0] != count:
        free(opened)
        free(heap)
        raise MemoryError if opened == NULL or heap == NULL else ValueError("one position for each run is expected")
    made_runs, made_starts, made_counts = (np.empty(capacity, kind) for kind in (np.int32, np.int64, np.int64))
    cdef int32_t[::1] segment_runs = made_runs
    cdef int64_t[::1] segment_starts = made_starts, segment_counts = made_counts
    try:
        for number in range(count):
            if positions[number] < 0:
                raise ValueError("a negative position")
            open_run(runs[number], &opened[number], positions[number])
            if opened[number].at < opened[number].end:
                heap[size] = number
                size += 1
        with nogil:
            for number in range(size // 2 - 1, -1, -1):
                sift(opened, heap, size, number)
        while size and limit > 0 and not is_over:
            if segments + 1 >= capacity:
                capacity *= 2
                made_runs, made_starts, made_counts = (
                    np.resize(made, capacity) for made in (made_runs, made_starts, made_counts)
                )
                segment_runs, segment_starts, segment_counts = made_runs, made_starts, made_counts
            with nogil:
                while size and limit > 0 and segments < capacity:
                    winner = heap[0]
                    at = opened[winner].at
                    room = opened[winner].end - at
                    end = at + (room if room < limit else limit)
                    if size > 1:
                        other = heap[1]
                        if size > 2 and before(opened, heap[2], heap[1]):
                            other = heap[2]
                        end = gallop(opened, winner, other, end)
                    segment_runs[segments] = winner
                    segment_starts[segments] = at
                    segment_counts[segments] = end - at
                    segments += 1
                    limit -= end - at
                    opened[winner].at = end
                    if end == opened[winner].end:
                        if goes_on[winner]:
                            is_over = True
                            break
                        size -= 1
                        heap[0] = heap[size]
                    if size:
                        sift(opened, heap, size, 0)
        for number in range(count):
            positions[number] = opened[number].at
    finally:
        free(opened)
        free(heap)
    return made_runs[:segments], made_starts[:segments], made_counts[:segments]
