/* Whether bytes are UTF-8 as Python decodes it: no surrogates, nothing longer than it must be, nothing above U+10FFFF. */
#ifndef LITHIFY_UTF8_H
#define LITHIFY_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Return how many bytes the sequence at `data` has, 0 if it is none; the first byte is 0x80 or more. */
static inline size_t lithify_utf8_sequence(const uint8_t *data, size_t size)
{
    uint8_t first = data[0], low = 0x80, high = 0xBF;
    size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    if (length == 0 || length > size)
        return 0;
    if (first == 0xE0)
        low = 0xA0;
    else if (first == 0xED)
        high = 0x9F;
    else if (first == 0xF0)
        low = 0x90;
    else if (first == 0xF4)
        high = 0x8F;
    if (data[1] < low || data[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((data[i] & 0xC0) != 0x80)
            return 0;
    return length;
}

static inline int lithify_is_utf8(const uint8_t *data, size_t size)
{
    while (size) {
        uint64_t word;
        while (size >= 8) {
            memcpy(&word, data, 8);
            if (word & 0x8080808080808080ull)
                break;
            data += 8;
            size -= 8;
        }
        if (size == 0)
            break;
        size_t length = data[0] < 0x80 ? 1 : lithify_utf8_sequence(data, size);
        if (length == 0)
            return 0;
        data += length;
        size -= length;
    }
    return 1;
}

#endif
