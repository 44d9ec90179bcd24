"""The compiled job queue: one binary heap per level over C structs, and where each job stands in it.

1. A slot is a job's number while it is queued: ``_names[slot]`` is its name, ``_places[slot]`` its level and position.
2. ``_levels[level].entries`` is a heap: no entry is less than its parent.
3. Integers decide; names are compared only when all integers are equal.
"""

from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

cdef enum:
    LEVEL_COUNT = 64
    CAPACITY_MIN = 16

cdef struct entry_t:
    int64_t status
    int64_t failures
    int64_t expires_ms
    Py_ssize_t slot

cdef struct heap_t:
    entry_t* entries
    Py_ssize_t size
    Py_ssize_t capacity

cdef struct place_t:
    Py_ssize_t level
    Py_ssize_t position


cdef class JobQueue:
    """See ``engine.schedule.job_queue``."""

    cdef heap_t _levels[LEVEL_COUNT]
    cdef place_t* _places
    cdef Py_ssize_t _slot_capacity
    cdef list _names
    cdef list _free
    cdef dict _slots

    def __cinit__(self):
        memset(self._levels, 0, sizeof(self._levels))
        self._places = NULL
        self._slot_capacity = 0
        self._names = []
        self._free = []
        self._slots = {}

    def __dealloc__(self):
        cdef Py_ssize_t level
        for level in range(LEVEL_COUNT):
            PyMem_Free(self._levels[level].entries)
        PyMem_Free(self._places)

    def __len__(self):
        return len(self._slots)

    def __contains__(self, name):
        return name in self._slots

    def __iter__(self):
        other = self.copy()
        names = []
        while (name := other.pop()) is not None:
            names.append(name)
        return iter(names)

    def put(self, str name not None, *, Py_ssize_t level, int64_t status, int64_t failures, int64_t expires_ms):
        cdef entry_t entry
        cdef heap_t* heap
        if not 0 <= level < LEVEL_COUNT:
            raise ValueError(f"job {name!r}: level {level} is not in 0..{LEVEL_COUNT - 1}")
        self.delete(name)
        heap = &self._levels[level]
        self._reserve(heap)
        entry.status, entry.failures, entry.expires_ms = status, failures, expires_ms
        entry.slot = self._take_slot(name)
        self._places[entry.slot].level = level
        heap.size += 1
        self._set(heap, heap.size - 1, entry)
        self._rise(heap, heap.size - 1)

    def delete(self, str name not None):
        cdef Py_ssize_t slot
        found = self._slots.get(name)
        if found is None:
            return False
        slot = found
        self._remove(&self._levels[self._places[slot].level], self._places[slot].position)
        return True

    def levels(self):
        return [level for level in range(LEVEL_COUNT) if self._levels[level].size]

    def peek(self, level=None):
        cdef heap_t* heap = self._first(level)
        return None if heap == NULL else self._names[heap.entries[0].slot]

    def pop(self, level=None):
        cdef heap_t* heap = self._first(level)
        if heap == NULL:
            return None
        name = self._names[heap.entries[0].slot]
        self._remove(heap, 0)
        return name

    def copy(self):
        cdef JobQueue other = JobQueue()
        cdef Py_ssize_t level
        cdef heap_t* source
        other._names, other._free, other._slots = list(self._names), list(self._free), dict(self._slots)
        if self._slot_capacity:
            other._places = <place_t*>_grown(NULL, self._slot_capacity * sizeof(place_t))
            other._slot_capacity = self._slot_capacity
            memcpy(other._places, self._places, self._slot_capacity * sizeof(place_t))
        for level in range(LEVEL_COUNT):
            source = &self._levels[level]
            if source.size:
                other._levels[level].entries = <entry_t*>_grown(NULL, source.capacity * sizeof(entry_t))
                other._levels[level].capacity = source.capacity
                other._levels[level].size = source.size
                memcpy(other._levels[level].entries, source.entries, source.size * sizeof(entry_t))
        return other

    def check(self):
        cdef Py_ssize_t level, position, slot, total = 0
        cdef heap_t* heap
        for level in range(LEVEL_COUNT):
            heap = &self._levels[level]
            total += heap.size
            for position in range(heap.size):
                slot = heap.entries[position].slot
                assert self._slots[self._names[slot]] == slot
                assert self._places[slot].level == level and self._places[slot].position == position
                assert position == 0 or not self._is_less(&heap.entries[position], &heap.entries[(position - 1) // 2])
        assert total == len(self._slots) == len(self._names) - len(self._free)

    cdef heap_t* _first(self, level) except? NULL:
        """Return the heap whose first entry comes first; NULL if there is none."""
        cdef Py_ssize_t number
        if level is not None:
            number = level
            return &self._levels[number] if 0 <= number < LEVEL_COUNT and self._levels[number].size else NULL
        for number in range(LEVEL_COUNT):
            if self._levels[number].size:
                return &self._levels[number]
        return NULL

    cdef Py_ssize_t _take_slot(self, str name) except -1:
        cdef Py_ssize_t slot
        if self._free:
            slot = self._free.pop()
            self._names[slot] = name
        else:
            slot = len(self._names)
            if slot == self._slot_capacity:
                self._places = <place_t*>_grown(self._places, max(CAPACITY_MIN, 2 * slot) * sizeof(place_t))
                self._slot_capacity = max(CAPACITY_MIN, 2 * slot)
            self._names.append(name)
        self._slots[name] = slot
        return slot

    cdef int _reserve(self, heap_t* heap) except -1:
        cdef Py_ssize_t capacity
        if heap.size == heap.capacity:
            capacity = max(CAPACITY_MIN, 2 * heap.capacity)
            heap.entries = <entry_t*>_grown(heap.entries, capacity * sizeof(entry_t))
            heap.capacity = capacity
        return 0

    cdef int _remove(self, heap_t* heap, Py_ssize_t position) except -1:
        cdef Py_ssize_t slot = heap.entries[position].slot
        cdef entry_t last
        heap.size -= 1
        if position < heap.size:
            last = heap.entries[heap.size]
            self._set(heap, position, last)
            self._rise(heap, position)
            self._sink(heap, self._places[last.slot].position)
        del self._slots[self._names[slot]]
        self._names[slot] = None
        self._free.append(slot)
        return 0

    cdef inline void _set(self, heap_t* heap, Py_ssize_t position, entry_t entry) noexcept:
        heap.entries[position] = entry
        self._places[entry.slot].position = position

    cdef int _rise(self, heap_t* heap, Py_ssize_t position) except -1:
        cdef entry_t entry = heap.entries[position]
        cdef Py_ssize_t parent
        while position > 0:
            parent = (position - 1) // 2
            if not self._is_less(&entry, &heap.entries[parent]):
                break
            self._set(heap, position, heap.entries[parent])
            position = parent
        self._set(heap, position, entry)
        return 0

    cdef int _sink(self, heap_t* heap, Py_ssize_t position) except -1:
        cdef entry_t entry = heap.entries[position]
        cdef Py_ssize_t child
        while (child := 2 * position + 1) < heap.size:
            if child + 1 < heap.size and self._is_less(&heap.entries[child + 1], &heap.entries[child]):
                child += 1
            if not self._is_less(&heap.entries[child], &entry):
                break
            self._set(heap, position, heap.entries[child])
            position = child
        self._set(heap, position, entry)
        return 0

    cdef inline bint _is_less(self, const entry_t* left, const entry_t* right) except -1:
        if left.status != right.status:
            return left.status < right.status
        if left.failures != right.failures:
            return left.failures < right.failures
        if left.expires_ms != right.expires_ms:
            return left.expires_ms < right.expires_ms
        return <str>self._names[left.slot] < <str>self._names[right.slot]


cdef void* _grown(void* memory, size_t size) except NULL:
    cdef void* grown = PyMem_Realloc(memory, size)
    if grown == NULL:
        raise MemoryError(f"{size} bytes for a job queue")
    return grown
