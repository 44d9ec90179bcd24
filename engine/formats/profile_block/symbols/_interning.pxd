"""Open-addressing hash tables that assign numbers to distinct items (inline C, no module).

A slot has half of a hash and an index + 1; the items are in an array of the caller. Tables are at most half full, so
that searches end; hashes are seeded per process (see csrc/mixing.h).
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from engine.core._byte_buffers cimport Buffer, put_bytes
from engine.formats.profile_block.symbols._symbol_arrays cimport StringItem

cdef extern from "csrc/mixing.h":
    uint64_t lithify_mix(uint64_t seed, uint64_t value) noexcept nogil
    uint64_t lithify_hash_bytes(uint64_t seed, const uint8_t* data, size_t size) noexcept nogil


ctypedef struct Slots:
    uint64_t* entries
    size_t mask
    size_t used


cdef inline uint32_t tag_of(uint64_t hash) noexcept nogil:
    return <uint32_t>(hash >> 32)


cdef inline int slots_make_room(Slots* slots) except -1 nogil:
    """Grow the table if one more entry would fill more than half of it."""
    cdef size_t size, index, position
    cdef uint64_t* grown
    if slots.entries != NULL and 2 * (slots.used + 1) <= slots.mask + 1:
        return 0
    size = 64 if slots.entries == NULL else 2 * (slots.mask + 1)
    grown = <uint64_t*>calloc(size, sizeof(uint64_t))
    if grown == NULL:
        with gil:
            raise MemoryError()
    if slots.entries != NULL:
        for index in range(slots.mask + 1):
            if slots.entries[index]:
                position = (slots.entries[index] >> 32) & (size - 1)
                while grown[position]:
                    position = (position + 1) & (size - 1)
                grown[position] = slots.entries[index]
        free(slots.entries)
    slots.entries = grown
    slots.mask = size - 1
    return 0


cdef inline void slots_free(Slots* slots) noexcept nogil:
    free(slots.entries)
    slots.entries = NULL
    slots.used = 0
    slots.mask = 0


cdef inline void slots_fill(Slots* slots, size_t position, uint32_t tag, size_t index) noexcept nogil:
    slots.entries[position] = (<uint64_t>tag << 32) | <uint32_t>(index + 1)
    slots.used += 1


cdef inline uint32_t intern_string(Slots* slots, Buffer* strings, uint64_t seed, StringItem text) except? 0xFFFFFFFF nogil:
    """Return the number of a string in an array of StringItem; append its pointer (not its bytes) if it is new."""
    cdef uint32_t tag = tag_of(lithify_hash_bytes(seed, text.data, text.size))
    cdef size_t position, index
    cdef StringItem* known
    slots_make_room(slots)
    position = tag & slots.mask
    while slots.entries[position]:
        if slots.entries[position] >> 32 == tag:
            index = <uint32_t>slots.entries[position] - 1
            known = &(<StringItem*>strings.data)[index]
            if known.size == text.size and memcmp(known.data, text.data, text.size) == 0:
                return <uint32_t>index
        position = (position + 1) & slots.mask
    index = strings.size // sizeof(StringItem)
    put_bytes(strings, &text, sizeof(StringItem))
    slots_fill(slots, position, tag, index)
    return <uint32_t>index
