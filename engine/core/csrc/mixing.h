/* Hashes for the tables of interned symbols. Seeded per process: a client cannot prepare colliding input; the
 * numbering of symbols depends on the order of insertion only, never on a hash. */
#ifndef LITHIFY_MIXING_H
#define LITHIFY_MIXING_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t lithify_fold(uint64_t left, uint64_t right)
{
#ifdef __SIZEOF_INT128__
    unsigned __int128 product = (unsigned __int128)left * right;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    uint64_t value = (left ^ (right >> 32)) * 0xD6E8FEB86659FD93ull;
    value ^= value >> 32;
    value = (value + right) * 0xD6E8FEB86659FD93ull;
    return value ^ (value >> 29);
#endif
}

static inline uint64_t lithify_mix(uint64_t seed, uint64_t value)
{
    return lithify_fold(value ^ seed, 0x9E3779B97F4A7C15ull ^ (seed >> 7));
}

static inline uint64_t lithify_hash_bytes(uint64_t seed, const uint8_t *data, size_t size)
{
    uint64_t hash = seed ^ (uint64_t)size * 0xA0761D6478BD642Full;
    while (size >= 16) {
        uint64_t low, high;
        memcpy(&low, data, 8);
        memcpy(&high, data + 8, 8);
        hash = lithify_fold(low ^ seed ^ hash, high ^ 0xE7037ED1A0B428DBull ^ hash);
        data += 16;
        size -= 16;
    }
    uint64_t low = 0, high = 0;
    if (size >= 8) {
        memcpy(&low, data, 8);
        memcpy(&high, data + size - 8, 8);
    } else if (size) {
        memcpy(&low, data, size);
        high = size;
    }
    return lithify_fold(low ^ seed ^ hash, high ^ 0x8EBC6AF09C88C6E3ull ^ hash);
}

#endif
