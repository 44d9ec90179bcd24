"""Compiled jump consistent hash of single keys, and of arrays with four keys at a time.

The steps of a key depend on one another, and a division dominates each step. Four interleaved keys use that latency; a
loop over single keys cannot, because the processor mispredicts the last step of nearly every key.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t

import numpy as np

cdef enum:
    LANES = 4
    BUCKETS_MAX = 2147483647

cdef double TWO_TO_31 = 2147483648.0


cdef inline int64_t next_bucket(uint64_t key, int64_t bucket) noexcept nogil:
    """Return the next bucket of a key as buckets are added; ``key`` is the state after its step."""
    return <int64_t>(<double>(bucket + 1) * (TWO_TO_31 / <double><int64_t>((key >> 33) + 1)))


cdef inline uint64_t next_key(uint64_t key) noexcept nogil:
    return key * <uint64_t>2862933555777941757 + 1


cdef int64_t jump(uint64_t key, int64_t buckets) noexcept nogil:
    """Return the bucket of a key, -1 if there is no bucket."""
    cdef int64_t bucket = -1, following = 0
    while following < buckets:
        bucket = following
        key = next_key(key)
        following = next_bucket(key, bucket)
    return bucket


cdef void jump_lanes(const uint64_t* keys, int64_t buckets, int32_t* out) noexcept nogil:
    cdef uint64_t key[LANES]
    cdef int64_t bucket[LANES]
    cdef int64_t following[LANES]
    cdef int64_t landing
    cdef bint is_moving, any_moving = True
    cdef size_t lane
    for lane in range(LANES):
        key[lane], bucket[lane], following[lane] = keys[lane], 0, 0
    while any_moving:
        any_moving = False
        for lane in range(LANES):
            key[lane] = next_key(key[lane])
            is_moving = following[lane] < buckets
            bucket[lane] = following[lane] if is_moving else bucket[lane]
            landing = next_bucket(key[lane], bucket[lane])
            following[lane] = landing if is_moving else following[lane]
            any_moving |= following[lane] < buckets
    for lane in range(LANES):
        out[lane] = <int32_t>bucket[lane]


cdef void jump_many(const uint64_t* keys, size_t count, int64_t buckets, int32_t* out) noexcept nogil:
    cdef size_t index = 0
    while index + LANES <= count:
        jump_lanes(keys + index, buckets, out + index)
        index += LANES
    while index < count:
        out[index] = <int32_t>jump(keys[index], buckets)
        index += 1


def jump_hash(uint64_t key, int64_t buckets):
    return jump(key, buckets)


def jump_hash_array(const uint64_t[::1] keys, int64_t buckets):
    cdef size_t count = keys.shape[0]
    out = np.empty(count, np.int32)
    cdef int32_t[::1] view = out
    if count:
        with nogil:
            jump_many(&keys[0], count, buckets, &view[0])
    return out
