/* CRC-32C (Castagnoli) and CRC-32 (IEEE): slicing by eight, and the SSE4.2 instruction for CRC-32C where it exists. */
#ifndef LITHIFY_CHECKSUMS_H
#define LITHIFY_CHECKSUMS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define LITHIFY_HAS_SSE42_CODE 1
#include <nmmintrin.h>
#endif

#ifdef LITHIFY_DEBUG_BUILD
#define LITHIFY_IS_DEBUG_BUILD 1
#else
#define LITHIFY_IS_DEBUG_BUILD 0
#endif

#define LITHIFY_POLYNOMIAL_CASTAGNOLI 0x82F63B78u
#define LITHIFY_POLYNOMIAL_IEEE 0xEDB88320u

typedef struct {
    uint32_t rows[8][256];
} lithify_crc_table;

static inline void lithify_crc_fill(lithify_crc_table *table, uint32_t polynomial)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1) ? polynomial : 0);
        table->rows[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int row = 1; row < 8; row++) {
            uint32_t before = table->rows[row - 1][byte];
            table->rows[row][byte] = (before >> 8) ^ table->rows[0][before & 0xFF];
        }
}

/* The caller passes and receives the plain register (neither initial nor final inversion). */
static inline uint32_t lithify_crc_sliced(const lithify_crc_table *table, uint32_t crc, const uint8_t *data, size_t size)
{
    while (size >= 8) {
        uint32_t low, high;
        memcpy(&low, data, 4);
        memcpy(&high, data + 4, 4);
        low ^= crc;
        crc = table->rows[7][low & 0xFF] ^ table->rows[6][(low >> 8) & 0xFF]
            ^ table->rows[5][(low >> 16) & 0xFF] ^ table->rows[4][low >> 24]
            ^ table->rows[3][high & 0xFF] ^ table->rows[2][(high >> 8) & 0xFF]
            ^ table->rows[1][(high >> 16) & 0xFF] ^ table->rows[0][high >> 24];
        data += 8;
        size -= 8;
    }
    while (size--)
        crc = (crc >> 8) ^ table->rows[0][(crc ^ *data++) & 0xFF];
    return crc;
}

/* Bytes of each of three neighbouring parts whose checksums are computed side by side: an instruction waits for the one
   before it of the same part, and the processor begins three in that time. */
#define LITHIFY_CRC_PART 128

/* What the register becomes after LITHIFY_CRC_PART zero bytes, by each of its bytes. */
typedef struct {
    uint32_t rows[4][256];
} lithify_crc_shift;

static inline void lithify_crc_fill_shift(lithify_crc_shift *shift, const lithify_crc_table *table)
{
    static const uint8_t zeros[LITHIFY_CRC_PART];
    for (int row = 0; row < 4; row++)
        for (uint32_t byte = 0; byte < 256; byte++)
            shift->rows[row][byte] = lithify_crc_sliced(table, byte << (8 * row), zeros, LITHIFY_CRC_PART);
}

static inline uint32_t lithify_crc_shifted(const lithify_crc_shift *shift, uint32_t crc)
{
    return shift->rows[0][crc & 0xFF] ^ shift->rows[1][(crc >> 8) & 0xFF] ^ shift->rows[2][(crc >> 16) & 0xFF]
        ^ shift->rows[3][crc >> 24];
}

#ifdef LITHIFY_HAS_SSE42_CODE
__attribute__((target("sse4.2")))
static inline uint32_t lithify_crc32c_sse42(const lithify_crc_shift *shift, uint32_t crc, const uint8_t *data, size_t size)
{
    uint64_t wide = crc;
    while (size >= 3 * LITHIFY_CRC_PART) {
        uint64_t second = 0, third = 0;
        for (size_t at = 0; at < LITHIFY_CRC_PART; at += 8) {
            uint64_t words[3];
            memcpy(&words[0], data + at, 8);
            memcpy(&words[1], data + LITHIFY_CRC_PART + at, 8);
            memcpy(&words[2], data + 2 * LITHIFY_CRC_PART + at, 8);
            wide = _mm_crc32_u64(wide, words[0]);
            second = _mm_crc32_u64(second, words[1]);
            third = _mm_crc32_u64(third, words[2]);
        }
        /* The register is linear: what comes after a part shifts what the part left in it. */
        wide = lithify_crc_shifted(shift, lithify_crc_shifted(shift, (uint32_t)wide) ^ (uint32_t)second) ^ third;
        data += 3 * LITHIFY_CRC_PART;
        size -= 3 * LITHIFY_CRC_PART;
    }
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        wide = _mm_crc32_u64(wide, word);
        data += 8;
        size -= 8;
    }
    crc = (uint32_t)wide;
    while (size--)
        crc = _mm_crc32_u8(crc, *data++);
    return crc;
}

static inline int lithify_cpu_has_sse42(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") != 0;
}
#else
static inline uint32_t lithify_crc32c_sse42(const lithify_crc_shift *shift, uint32_t crc, const uint8_t *data, size_t size)
{
    (void)shift;
    (void)data;
    (void)size;
    return crc;
}

static inline int lithify_cpu_has_sse42(void) { return 0; }
#endif

#endif
