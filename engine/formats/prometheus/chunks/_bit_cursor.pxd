"""Bit cursors for the compiled chunk codecs, most significant bit first (inline C, no module).

Reads past the end are safe and return zeros: a decoder reads the bits of a sample, then checks once whether the
position is still inside the data.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define lithify_be64(word) (word)
    #else
    #define lithify_be64(word) __builtin_bswap64(word)
    #endif
    """
    uint64_t lithify_be64(uint64_t word) noexcept nogil
    int __builtin_clzll(unsigned long long word) noexcept nogil
    int __builtin_ctzll(unsigned long long word) noexcept nogil


ctypedef struct BitCursor:
    const uint8_t* data
    size_t size  # bytes
    size_t at  # bits


ctypedef struct BitSink:
    uint8_t* out
    size_t size  # bytes written
    uint64_t pending  # in its low bits
    unsigned int pending_bits  # below 64
    bint ends_in_byte


cdef inline uint64_t peek(const BitCursor* cursor) noexcept nogil:
    """Return at least the next 57 bits, left-aligned; zeros past the end."""
    cdef size_t byte = cursor.at >> 3
    cdef uint64_t word = 0
    cdef size_t left, position
    if byte + 8 <= cursor.size:
        memcpy(&word, cursor.data + byte, 8)
        return lithify_be64(word) << (cursor.at & 7)
    left = cursor.size - byte if byte < cursor.size else 0
    for position in range(left):
        word |= <uint64_t>cursor.data[byte + position] << (56 - 8 * position)
    return word << (cursor.at & 7)


cdef inline uint64_t bits_at(const uint8_t* data, size_t at) noexcept nogil:
    """Return at least 57 bits from bit ``at`` on, left-aligned; eight bytes from there must exist."""
    cdef uint64_t word
    memcpy(&word, data + (at >> 3), 8)
    return lithify_be64(word) << (at & 7)


cdef inline uint64_t take_bits(BitCursor* cursor, unsigned int count) noexcept nogil:
    """Return the next 1 to 64 bits."""
    cdef uint64_t high
    if count <= 57:
        high = peek(cursor) >> (64 - count)
        cursor.at += count
        return high
    high = peek(cursor) >> 32
    cursor.at += 32
    count -= 32
    high = high << count | peek(cursor) >> (64 - count)
    cursor.at += count
    return high


cdef inline bint is_beyond(const BitCursor* cursor) noexcept nogil:
    return cursor.at > 8 * cursor.size


cdef inline void put_bits(BitSink* sink, uint64_t value, unsigned int count) noexcept nogil:
    """Append the low 1 to 64 bits of a number; the caller has reserved the space."""
    cdef unsigned int free = 64 - sink.pending_bits, over
    cdef uint64_t word
    if count < 64:
        value &= (<uint64_t>1 << count) - 1
    if count < free:
        sink.pending = sink.pending << count | value
        sink.pending_bits += count
    else:
        over = count - free
        # Without pending bits, all 64 bits come from the number.
        word = value if free == 64 else sink.pending << free | value >> over
        word = lithify_be64(word)
        memcpy(sink.out + sink.size, &word, 8)
        sink.size += 8
        sink.pending = value & ((<uint64_t>1 << over) - 1)
        sink.pending_bits = over
    sink.ends_in_byte = count % 8 == 0


cdef inline void finish_bits(BitSink* sink) noexcept nogil:
    """Write the pending bits, padded to a byte; a zero byte follows if the last number ended at a byte boundary."""
    while sink.pending_bits >= 8:
        sink.pending_bits -= 8
        sink.out[sink.size] = <uint8_t>(sink.pending >> sink.pending_bits)
        sink.size += 1
    if sink.pending_bits:
        sink.out[sink.size] = <uint8_t>(sink.pending << (8 - sink.pending_bits))
        sink.size += 1
        sink.pending_bits = 0
    elif sink.ends_in_byte:
        sink.out[sink.size] = 0
        sink.size += 1
