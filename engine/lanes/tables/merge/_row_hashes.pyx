"""Compiled implementation of ``engine.lanes.tables.merge.row_hashes``."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from "csrc/xxhash64.h":
    uint64_t lithify_xxh64_bytes(const uint8_t* data, size_t size) noexcept nogil


cdef inline uint64_t mixed(uint64_t hashed, uint64_t word) noexcept nogil:
    """Return a hash combined with a word by the finalizer of SplitMix64."""
    cdef uint64_t value = hashed * 3 + <uint64_t>0x9E3779B97F4A7C15 + word
    value = (value ^ (value >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    value = (value ^ (value >> 27)) * <uint64_t>0x94D049BB133111EB
    return value ^ (value >> 31)


cdef int check(int64_t rows, const int64_t[::1] offsets, int64_t size) except -1:
    """Reject offsets outside of the data they index."""
    if offsets.shape[0] != rows + 1 or offsets[0] < 0 or offsets[rows] > size:
        raise ValueError("the offsets do not match the rows")
    return 0


def add_words(uint64_t[::1] hashes, const uint64_t[::1] words):
    """Mix a word into the hash of each row, in place."""
    cdef int64_t row
    if words.shape[0] != hashes.shape[0]:
        raise ValueError("one word for each row is expected")
    with nogil:
        for row in range(hashes.shape[0]):
            hashes[row] = mixed(hashes[row], words[row])


def add_bytes(uint64_t[::1] hashes, const uint8_t[::1] data, const int64_t[::1] offsets):
    """Mix the XXH64 of ``data[offsets[i]:offsets[i + 1]]`` into the hash of row i, in place."""
    cdef int64_t row
    cdef const uint8_t* start = &data[0] if data.shape[0] else NULL
    check(hashes.shape[0], offsets, data.shape[0])
    with nogil:
        for row in range(hashes.shape[0]):
            hashes[row] = mixed(
                hashes[row], lithify_xxh64_bytes(start + offsets[row], offsets[row + 1] - offsets[row])
            )


def add_lists(uint64_t[::1] hashes, const uint64_t[::1] elements, const int64_t[::1] offsets):
    """Mix the elements ``offsets[i]`` up to ``offsets[i + 1]``, and their number, into row i's hash."""
    cdef int64_t row, place
    check(hashes.shape[0], offsets, elements.shape[0])
    with nogil:
        for row in range(hashes.shape[0]):
            for place in range(offsets[row], offsets[row + 1]):
                hashes[row] = mixed(hashes[row], elements[place])
            hashes[row] = mixed(hashes[row], <uint64_t>(offsets[row + 1] - offsets[row]))
