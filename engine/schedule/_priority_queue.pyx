"""The compiled priority queue: a binary heap of C structs; no entry is smaller than its parent.

``_names`` and ``_items`` keep the Python objects alive; an entry holds their position in these lists.
"""

from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int64_t

cdef enum:
    CAPACITY_MIN = 16

cdef struct entry_t:
    int64_t first
    int64_t second
    Py_ssize_t slot


cdef class PriorityQueue:
    """See ``engine.schedule.priority_queue``."""

    cdef entry_t* _entries
    cdef Py_ssize_t _size
    cdef Py_ssize_t _capacity
    cdef list _names
    cdef list _items
    cdef list _free

    def __cinit__(self):
        self._entries = NULL
        self._size = self._capacity = 0
        self._names, self._items, self._free = [], [], []

    def __dealloc__(self):
        PyMem_Free(self._entries)

    def __class_getitem__(cls, item):
        return cls

    def __len__(self):
        return self._size

    def push(self, int64_t first, int64_t second, str name not None, item):
        cdef entry_t entry
        self._reserve()
        entry.first, entry.second = first, second
        if self._free:
            entry.slot = self._free.pop()
            self._names[entry.slot], self._items[entry.slot] = name, item
        else:
            entry.slot = len(self._names)
            self._names.append(name)
            self._items.append(item)
        self._size += 1
        self._rise(self._size - 1, entry)

    def peek(self):
        cdef entry_t* entry
        self._check_any()
        entry = &self._entries[0]
        return entry.first, entry.second, self._names[entry.slot]

    def pop(self):
        cdef Py_ssize_t slot
        self._check_any()
        slot = self._entries[0].slot
        item = self._items[slot]
        self._size -= 1
        if self._size:
            self._sink(self._entries[self._size])
        self._names[slot] = self._items[slot] = None
        self._free.append(slot)
        return item

    cdef int _check_any(self) except -1:
        if not self._size:
            raise IndexError("the priority queue is empty")
        return 0

    cdef int _reserve(self) except -1:
        cdef Py_ssize_t capacity
        cdef void* grown
        if self._size == self._capacity:
            capacity = max(CAPACITY_MIN, 2 * self._capacity)
            grown = PyMem_Realloc(self._entries, capacity * sizeof(entry_t))
            if grown == NULL:
                raise MemoryError(f"{capacity} entries of a priority queue")
            self._entries = <entry_t*>grown
            self._capacity = capacity
        return 0

    cdef int _rise(self, Py_ssize_t position, entry_t entry) except -1:
        """Move an entry up from the free position until its parent is not larger."""
        cdef Py_ssize_t parent
        while position > 0:
            parent = (position - 1) // 2
            if not self._is_less(&entry, &self._entries[parent]):
                break
            self._entries[position] = self._entries[parent]
            position = parent
        self._entries[position] = entry
        return 0

    cdef int _sink(self, entry_t entry) except -1:
        """Move an entry down from the root until no child is smaller."""
        cdef Py_ssize_t position = 0, child
        while (child := 2 * position + 1) < self._size:
            if child + 1 < self._size and self._is_less(&self._entries[child + 1], &self._entries[child]):
                child += 1
            if not self._is_less(&self._entries[child], &entry):
                break
            self._entries[position] = self._entries[child]
            position = child
        self._entries[position] = entry
        return 0

    cdef inline bint _is_less(self, const entry_t* left, const entry_t* right) except -1:
        if left.first != right.first:
            return left.first < right.first
        if left.second != right.second:
            return left.second < right.second
        return <str>self._names[left.slot] < <str>self._names[right.slot]
