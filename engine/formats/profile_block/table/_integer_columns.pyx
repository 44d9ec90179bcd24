"""Codec of DELTA_BINARY_PACKED, and decoder of Parquet's RLE/bit-packing hybrid, on C arrays.

The decoder accepts any reasonable geometry (the Go writer: blocks of 128 in four mini blocks; pyarrow: 256 in four for
64 bits). The encoder is byte-identical to the Go writer ("Symbols" in ``docs/reference/formats/profile-block.md``),
which counts the missing values of a partial last block as zeros for the minimum delta.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from engine.core._byte_buffers cimport (
    Buffer, Cursor, buffer_free, buffer_reserve, cursor_over, left, put_svarint, put_u8, put_uvarint, put_zeros,
    read_svarint, read_uvarint, take,
)

cdef extern from "csrc/packed_bits.h":
    size_t LITHIFY_PACKED_PADDING
    uint64_t lithify_packed_value(const uint8_t* packed, size_t index, unsigned int width) noexcept nogil
    void lithify_pack(uint8_t* out, const uint64_t* values, size_t count, unsigned int width) noexcept nogil
    unsigned int lithify_bit_length(uint64_t value) noexcept nogil
    uint64_t lithify_load_le(const uint8_t* data, unsigned int size) noexcept nogil

cdef enum:
    BLOCK = 128
    MINI_BLOCKS = 4
    MINI_BLOCK = 32
    MINI_BLOCK_VALUES_MAX = 512     # current writers use 32 to 256
    MINI_BLOCKS_MAX = 64
    SCRATCH_BYTES = 512 * 8 + 16    # one mini block of the widest values, and padding


cdef inline int64_t _wrapped(uint64_t value, unsigned int bits) noexcept nogil:
    return <int64_t><int32_t>value if bits == 32 else <int64_t>value


cdef inline void _undelta(const uint8_t* packed, unsigned int width, size_t count, int64_t least, unsigned int bits,
                          uint64_t* running, int64_t* out) noexcept nogil:
    """Unpack ``count`` deltas and write the running sums; ``packed`` has padding, which unpacking may read."""
    cdef uint64_t value = running[0]
    cdef size_t index
    for index in range(count):
        value += <uint64_t>least + (lithify_packed_value(packed, index, width) if width else 0)
        out[index] = _wrapped(value, bits)
    running[0] = value


cdef Decoded delta_decode(Cursor* cursor, unsigned int bits, int64_t* out, size_t capacity,
                          size_t* count) noexcept nogil:
    """Read a DELTA_BINARY_PACKED run into ``out`` (at most ``capacity`` values, sign extended) and set the count."""
    cdef uint64_t block = read_uvarint(cursor)
    cdef uint64_t minis = read_uvarint(cursor)
    cdef uint64_t total = read_uvarint(cursor)
    cdef uint64_t running = <uint64_t>read_svarint(cursor)
    cdef size_t per_mini, done, mini, step, size
    cdef int64_t least
    cdef const uint8_t* widths
    cdef const uint8_t* packed
    cdef uint8_t scratch[SCRATCH_BYTES]
    if cursor.failed or total > capacity:
        return DAMAGED
    if minis == 0 or minis > MINI_BLOCKS_MAX or block == 0 or block > minis * MINI_BLOCK_VALUES_MAX or block % (minis * 8):
        return UNSUPPORTED
    per_mini = block // minis
    count[0] = total
    if total == 0:
        return DONE
    out[0] = _wrapped(running, bits)
    done = 1
    while done < total:
        least = read_svarint(cursor)
        widths = take(cursor, minis)
        if cursor.failed:
            return DAMAGED
        for mini in range(minis):
            if done >= total:
                break
            if widths[mini] > bits:
                return DAMAGED
            step = min(per_mini, total - done)
            size = per_mini * widths[mini] // 8
            packed = take(cursor, size)
            if packed == NULL:
                return DAMAGED
            if left(cursor) < LITHIFY_PACKED_PADDING:
                memcpy(scratch, packed, size)
                memset(scratch + size, 0, LITHIFY_PACKED_PADDING)
                packed = scratch
            _undelta(packed, widths[mini], step, least, bits, &running, out + done)
            done += step
    return DONE


cdef int _encode_block(Buffer* out, const int64_t* values, size_t at, size_t count, unsigned int bits) except -1 nogil:
    """Write the block of deltas of ``values[at]``, ``values[at + 1]`` and so on; ``at`` is at least 1."""
    cdef uint64_t deltas[BLOCK]
    cdef uint64_t all_bits
    cdef size_t real = min(<size_t>BLOCK, count - at)
    cdef size_t index, mini
    cdef int64_t least
    cdef unsigned int width
    for index in range(real):
        deltas[index] = <uint64_t>_wrapped(<uint64_t>values[at + index] - <uint64_t>values[at + index - 1], bits)
    if real < BLOCK:
        deltas[real] = <uint64_t>_wrapped(0 - <uint64_t>values[count - 1], bits)
        for index in range(real + 1, BLOCK):
            deltas[index] = 0
    least = <int64_t>deltas[0]
    for index in range(1, BLOCK):
        least = min(least, <int64_t>deltas[index])
    for index in range(BLOCK):
        deltas[index] = (deltas[index] - <uint64_t>least) if index < real else 0
        if bits == 32:
            deltas[index] &= 0xFFFFFFFFu
    put_svarint(out, least)
    buffer_reserve(out, MINI_BLOCKS + BLOCK * 8)
    for mini in range(MINI_BLOCKS):
        all_bits = 0
        for index in range(MINI_BLOCK):
            all_bits |= deltas[mini * MINI_BLOCK + index]
        put_u8(out, <uint8_t>lithify_bit_length(all_bits))
    cdef const uint8_t* widths = out.data + out.size - MINI_BLOCKS
    for mini in range(MINI_BLOCKS):
        width = widths[mini]
        memset(out.data + out.size, 0, width * MINI_BLOCK // 8)
        lithify_pack(out.data + out.size, deltas + mini * MINI_BLOCK, MINI_BLOCK, width)
        out.size += width * MINI_BLOCK // 8
    return 0


cdef int delta_encode(Buffer* out, const int64_t* values, size_t count, unsigned int bits) except -1 nogil:
    """Append values (sign extended if ``bits`` is 32), byte-identical to the Go writer."""
    cdef size_t at = 1
    put_uvarint(out, BLOCK)
    put_uvarint(out, MINI_BLOCKS)
    put_uvarint(out, count)
    put_svarint(out, values[0] if count else 0)
    while at < count:
        _encode_block(out, values, at, count, bits)
        at += BLOCK
    return 0


cdef Decoded levels_decode(const uint8_t* data, size_t size, unsigned int width, uint8_t* out,
                           size_t count) noexcept nogil:
    """Decode ``count`` levels of at most eight bits."""
    cdef Cursor cursor = cursor_over(data, size)
    cdef uint64_t header
    cdef size_t done = 0, run, index, bytes_wanted
    cdef const uint8_t* packed
    if width == 0 or width > 8:
        return DAMAGED
    while done < count:
        header = read_uvarint(&cursor)
        if cursor.failed:
            return DAMAGED
        run = <size_t>min(header >> 1, <uint64_t>(count - done))
        if header & 1:
            run = <size_t>min((header >> 1) * 8, <uint64_t>(count - done)) if header >> 1 < count else count - done
            bytes_wanted = (run + 7) // 8 * width
            packed = take(&cursor, bytes_wanted)
            if packed == NULL:
                return DAMAGED
            for index in range(run):
                out[done + index] = _small_packed(packed, index, width)
        else:
            packed = take(&cursor, 1)
            if packed == NULL:
                return DAMAGED
            memset(out + done, packed[0], run)
        done += run
    return DONE


cdef inline uint8_t _small_packed(const uint8_t* packed, size_t index, unsigned int width) noexcept nogil:
    """Return a value of at most eight bits without reading a byte past it."""
    cdef size_t bit = index * width
    cdef unsigned int shift = bit & 7
    cdef uint32_t word = packed[bit >> 3]
    if shift + width > 8:
        word |= <uint32_t>packed[(bit >> 3) + 1] << 8
    return <uint8_t>((word >> shift) & ((1u << width) - 1))


cdef Decoded indexes_decode(const uint8_t* data, size_t size, unsigned int width, uint32_t* out,
                            size_t count) noexcept nogil:
    """Decode ``count`` dictionary indexes of at most 32 bits."""
    cdef Cursor cursor = cursor_over(data, size)
    cdef uint64_t header, value
    cdef size_t done = 0, run, index, group
    cdef uint8_t scratch[32 + 16]
    cdef const uint8_t* packed
    if width > 32:
        return DAMAGED
    if width == 0:
        memset(out, 0, count * sizeof(uint32_t))
        return DONE
    while done < count:
        header = read_uvarint(&cursor)
        if cursor.failed:
            return DAMAGED
        if header & 1:
            for group in range(min(header >> 1, <uint64_t>(count - done + 7) // 8)):
                packed = take(&cursor, width)
                if packed == NULL:
                    return DAMAGED
                memcpy(scratch, packed, width)
                run = min(<size_t>8, count - done)
                for index in range(run):
                    out[done + index] = <uint32_t>lithify_packed_value(scratch, index, width)
                done += run
        else:
            packed = take(&cursor, (width + 7) // 8)
            if packed == NULL:
                return DAMAGED
            value = lithify_load_le(packed, (width + 7) // 8)
            run = <size_t>min(header >> 1, <uint64_t>(count - done))
            for index in range(run):
                out[done + index] = <uint32_t>value
            done += run
    return DONE


def decode_deltas(const uint8_t[::1] data, unsigned int bits, size_t count_max):
    """Return (values, bytes used) of a run, None if the encoding is invalid or not supported. For tests."""
    cdef Cursor cursor = cursor_over(&data[0] if data.shape[0] else NULL, data.shape[0])
    cdef size_t count = 0, index
    cdef int64_t* out = <int64_t*>malloc(max(count_max, <size_t>1) * sizeof(int64_t))
    if out == NULL:
        raise MemoryError()
    try:
        if delta_decode(&cursor, bits, out, count_max, &count) != DONE:
            return None
        return [out[index] for index in range(count)], cursor.at
    finally:
        free(out)


def encode_deltas(list values, unsigned int bits):
    """Return an encoded run. For tests."""
    cdef Buffer out = Buffer(NULL, 0, 0)
    cdef Buffer numbers = Buffer(NULL, 0, 0)
    cdef object value
    try:
        put_zeros(&numbers, (len(values) + 1) * sizeof(int64_t))
        for index, value in enumerate(values):
            (<int64_t*>numbers.data)[<size_t>index] = value
        delta_encode(&out, <int64_t*>numbers.data, len(values), bits)
        return (<char*>out.data)[:out.size]
    finally:
        buffer_free(&out)
        buffer_free(&numbers)
