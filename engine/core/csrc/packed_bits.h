/* Integers of a fixed bit width packed from the low bit up, and zigzag: what Parquet and the symbol tables share.
 *
 * Values are read through unaligned eight-byte loads on little-endian machines; callers give padded input (16 readable
 * bytes beyond the last packed byte), so no load leaves its buffer.
 */
#ifndef LITHIFY_PACKED_BITS_H
#define LITHIFY_PACKED_BITS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the profile kernels read little-endian values in place: build for a little-endian machine"
#endif

#define LITHIFY_PACKED_PADDING 16

static inline uint64_t lithify_packed_value(const uint8_t *packed, size_t index, unsigned width)
{
    size_t bit = index * width;
    unsigned shift = (unsigned)(bit & 7);
    uint64_t low;
    memcpy(&low, packed + (bit >> 3), 8);
    low >>= shift;
    if (width + shift > 64)
        low |= (uint64_t)packed[(bit >> 3) + 8] << (64 - shift);
    return width == 64 ? low : low & ((1ull << width) - 1);
}

/* out has room for count values of width bits, zeroed before. */
static inline void lithify_pack(uint8_t *out, const uint64_t *values, size_t count, unsigned width)
{
    size_t bit = 0;
    for (size_t index = 0; index < count; index++, bit += width) {
        uint64_t value = values[index];
        unsigned left = width, shift = (unsigned)(bit & 7);
        uint8_t *at = out + (bit >> 3);
        while (left) {
            unsigned taken = 8 - shift < left ? 8 - shift : left;
            *at++ |= (uint8_t)((value & ((1u << taken) - 1)) << shift);
            value >>= taken;
            left -= taken;
            shift = 0;
        }
    }
}

static inline unsigned lithify_bit_length(uint64_t value)
{
    return value ? 64 - (unsigned)__builtin_clzll(value) : 0;
}

static inline uint64_t lithify_load_le(const uint8_t *data, unsigned size)
{
    uint64_t value = 0;
    memcpy(&value, data, size);
    return value;
}

/* Four values of a group varint; at has 16 readable bytes. Returns how many of them belong to the group. */
static inline unsigned lithify_group_read(uint8_t control, const uint8_t *at, uint32_t values[4])
{
    unsigned used = 0;
    for (unsigned field = 0; field < 4; field++) {
        unsigned extra = (control >> (2 * field)) & 3;
        memcpy(&values[field], at + used, 4);
        values[field] &= 0xFFFFFFFFu >> (24 - 8 * extra);
        used += extra + 1;
    }
    return used;
}

/* Writes the control byte and four values; out has 17 bytes. Returns how many were written. */
static inline unsigned lithify_group_write(uint8_t *out, const uint32_t values[4])
{
    unsigned used = 1;
    out[0] = 0;
    for (unsigned field = 0; field < 4; field++) {
        unsigned extra = (31 - (unsigned)__builtin_clz(values[field] | 1)) >> 3;
        memcpy(out + used, &values[field], 4);
        out[0] |= (uint8_t)(extra << (2 * field));
        used += extra + 1;
    }
    return used;
}

static inline unsigned lithify_group_size(uint8_t control)
{
    return 4 + (control & 3) + ((control >> 2) & 3) + ((control >> 4) & 3) + (control >> 6);
}

#endif
