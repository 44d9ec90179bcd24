"""Jump consistent hash for the other compiled modules."""

from libc.stdint cimport int64_t, uint64_t

cdef int64_t jump(uint64_t key, int64_t buckets) noexcept nogil
