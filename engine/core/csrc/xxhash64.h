/* XXH64 with seed 0, after its public specification: the hash that orders the samples of a profile. */
#ifndef LITHIFY_XXHASH64_H
#define LITHIFY_XXHASH64_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LITHIFY_XXH_1 0x9E3779B185EBCA87ull
#define LITHIFY_XXH_2 0xC2B2AE3D27D4EB4Full
#define LITHIFY_XXH_3 0x165667B19E3779F9ull
#define LITHIFY_XXH_4 0x85EBCA77C2B2AE63ull
#define LITHIFY_XXH_5 0x27D4EB2F165667C5ull

static inline uint64_t lithify_xxh_turn(uint64_t value, unsigned bits)
{
    return (value << bits) | (value >> (64 - bits));
}

static inline uint64_t lithify_xxh_lane(uint64_t lane, uint64_t word)
{
    return lithify_xxh_turn(lane + word * LITHIFY_XXH_2, 31) * LITHIFY_XXH_1;
}

/* Hash `count` 64-bit words, taken as the bytes they have on a little-endian machine. */
static inline uint64_t lithify_xxh64_words(const uint64_t *words, size_t count)
{
    const uint64_t *end = words + count;
    uint64_t hash = LITHIFY_XXH_5;
    if (count >= 4) {
        uint64_t lane[4] = {LITHIFY_XXH_1 + LITHIFY_XXH_2, LITHIFY_XXH_2, 0, 0 - LITHIFY_XXH_1};
        for (; end - words >= 4; words += 4)
            for (int i = 0; i < 4; i++)
                lane[i] = lithify_xxh_lane(lane[i], words[i]);
        hash = lithify_xxh_turn(lane[0], 1) + lithify_xxh_turn(lane[1], 7) + lithify_xxh_turn(lane[2], 12)
             + lithify_xxh_turn(lane[3], 18);
        for (int i = 0; i < 4; i++)
            hash = (hash ^ lithify_xxh_lane(0, lane[i])) * LITHIFY_XXH_1 + LITHIFY_XXH_4;
    }
    hash += (uint64_t)count * 8;
    for (; words < end; words++)
        hash = lithify_xxh_turn(hash ^ lithify_xxh_lane(0, *words), 27) * LITHIFY_XXH_1 + LITHIFY_XXH_4;
    hash = (hash ^ (hash >> 33)) * LITHIFY_XXH_2;
    hash = (hash ^ (hash >> 29)) * LITHIFY_XXH_3;
    return hash ^ (hash >> 32);
}

/* Hash `size` bytes; the machine is little-endian. */
static inline uint64_t lithify_xxh64_bytes(const uint8_t *data, size_t size)
{
    const uint8_t *end = data + size;
    uint64_t hash = LITHIFY_XXH_5, word;
    uint32_t half;
    if (size >= 32) {
        uint64_t lane[4] = {LITHIFY_XXH_1 + LITHIFY_XXH_2, LITHIFY_XXH_2, 0, 0 - LITHIFY_XXH_1};
        for (; end - data >= 32; data += 32)
            for (int i = 0; i < 4; i++) {
                memcpy(&word, data + 8 * i, 8);
                lane[i] = lithify_xxh_lane(lane[i], word);
            }
        hash = lithify_xxh_turn(lane[0], 1) + lithify_xxh_turn(lane[1], 7) + lithify_xxh_turn(lane[2], 12)
             + lithify_xxh_turn(lane[3], 18);
        for (int i = 0; i < 4; i++)
            hash = (hash ^ lithify_xxh_lane(0, lane[i])) * LITHIFY_XXH_1 + LITHIFY_XXH_4;
    }
    hash += (uint64_t)size;
    for (; end - data >= 8; data += 8) {
        memcpy(&word, data, 8);
        hash = lithify_xxh_turn(hash ^ lithify_xxh_lane(0, word), 27) * LITHIFY_XXH_1 + LITHIFY_XXH_4;
    }
    if (end - data >= 4) {
        memcpy(&half, data, 4);
        hash = lithify_xxh_turn(hash ^ half * LITHIFY_XXH_1, 23) * LITHIFY_XXH_2 + LITHIFY_XXH_3;
        data += 4;
    }
    for (; data < end; data++)
        hash = lithify_xxh_turn(hash ^ *data * LITHIFY_XXH_5, 11) * LITHIFY_XXH_1;
    hash = (hash ^ (hash >> 33)) * LITHIFY_XXH_2;
    hash = (hash ^ (hash >> 29)) * LITHIFY_XXH_3;
    return hash ^ (hash >> 32);
}

#endif
