"""The compiled XOR codec; see ``engine.formats.prometheus.chunks.xor``."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t

from engine.core._byte_buffers cimport Cursor, cursor_over, read_uvarint, zigzag_decode, zigzag_encode
from engine.formats.prometheus.chunks._bit_cursor cimport (
    BitCursor, BitSink, __builtin_clzll, __builtin_ctzll, bits_at, finish_bits, is_beyond, peek, put_bits, take_bits,
)

import numpy as np

from engine.core.errors import BadObject, LimitExceeded, Truncated

cdef enum:
    BAD = 0
    TRUNCATED = 1
    LIMIT = 2
    COUNT_BYTES = 2
    COUNT_MAX = 65535
    PADDING_BITS_MAX = 8
    BYTES_AHEAD = 32  # more than the longest sample and one load past it
    HIGH_ZEROS_MAX = 31

cdef tuple ERRORS = (BadObject, Truncated, LimitExceeded)
cdef str SECTION = "chunk"


cdef inline int _fail(XorFault* fault, int kind, size_t offset, const char* reason) noexcept nogil:
    fault.kind = kind
    fault.offset = offset
    fault.reason = reason
    return -1


cdef inline int _fail_at(XorFault* fault, const BitCursor* bits, const char* reason) noexcept nogil:
    """Report a fault; past the end of the data it is the truncation, since reads there return zeros."""
    if is_beyond(bits):
        return _fail(fault, TRUNCATED, bits.size, b"the chunk ends inside a sample")
    return _fail(fault, BAD, bits.at >> 3, reason)


cdef int64_t xor_count(const uint8_t* data, size_t size, XorFault* fault) noexcept nogil:
    """Return the number of samples of a chunk; -1 and a fault if its bytes cannot hold them."""
    cdef int64_t count
    fault.kind = -1
    if size < COUNT_BYTES:
        return _fail(fault, TRUNCATED, size, b"the chunk ends inside its header")
    count = (<int64_t>data[0] << 8) | data[1]
    if count == 0:
        return _fail(fault, BAD, 0, b"the chunk has no samples")
    if <uint64_t>count * 2 > 8 * (size - COUNT_BYTES):
        return _fail(fault, LIMIT, 0, b"the chunk is too short for its number of samples")
    return count


cdef int decode_samples(const uint8_t* data, size_t size, int64_t* times, uint64_t* values,
                        XorFault* fault) noexcept nogil:
    """Decode a chunk into arrays for ``xor_count`` samples; -1 and a fault if the bytes are invalid."""
    cdef size_t count = (<size_t>data[0] << 8) | data[1]
    cdef Cursor head = cursor_over(data, size)
    cdef BitCursor bits
    cdef uint64_t time, value, word, payload
    cdef uint64_t step = 0
    cdef size_t position, at
    cdef unsigned int width = 0, low_zeros = 0, high_zeros
    fault.kind = -1
    head.at = COUNT_BYTES
    time = <uint64_t>zigzag_decode(read_uvarint(&head))
    if head.failed:
        return _varint_fault(fault, &head)
    bits.data = data
    bits.size = size
    bits.at = 8 * head.at
    value = take_bits(&bits, 64)
    if is_beyond(&bits):
        return _fail_at(fault, &bits, b"")
    times[0] = <int64_t>time
    values[0] = value
    for position in range(1, count):
        if position > 1 and (bits.at >> 3) + BYTES_AHEAD <= size:
            # All but the last samples: no read can pass the end, and one load holds the prefixes of both columns.
            at = bits.at
            word = bits_at(data, at)
            if word >> 63 == 0:
                at += 1
                word <<= 1
            elif word >> 62 == 0b10:
                payload = (word << 2) >> 50
                step += payload - (1 << 14 if payload > 1 << 13 else 0)
                at += 16
                word <<= 16
            elif word >> 61 == 0b110:
                payload = (word << 3) >> 47
                step += payload - (1 << 17 if payload > 1 << 16 else 0)
                at += 20
                word <<= 20
            elif word >> 60 == 0b1110:
                payload = (word << 4) >> 44
                step += payload - (1 << 20 if payload > 1 << 19 else 0)
                at += 24
                word <<= 24
            else:
                bits.at = at + 4
                step += take_bits(&bits, 64)
                at = bits.at
                word = bits_at(data, at)
            time += step
            if word >> 63 == 0:
                at += 1
            else:
                at += 2
                if word >> 62 == 0b11:
                    high_zeros = <unsigned int>((word << 2) >> 59)
                    width = <unsigned int>((word << 7) >> 58)
                    if width == 0:
                        width = 64
                    at += 11
                    if high_zeros + width > 64:
                        bits.at = at
                        return _fail_at(fault, &bits, b"a bit window exceeds 64 bits")
                    low_zeros = 64 - high_zeros - width
                elif width == 0:
                    bits.at = at
                    return _fail_at(fault, &bits, b"a value reuses a bit window that no earlier value defines")
                if width <= 57:
                    value ^= (bits_at(data, at) >> (64 - width)) << low_zeros
                    at += width
                else:
                    bits.at = at
                    value ^= take_bits(&bits, width) << low_zeros
                    at = bits.at
            bits.at = at
            times[position] = <int64_t>time
            values[position] = value
            continue
        if position == 1:
            head.at = bits.at >> 3  # still at a byte boundary
            step = read_uvarint(&head)
            if head.failed:
                return _varint_fault(fault, &head)
            bits.at = 8 * head.at
        else:
            word = peek(&bits)
            if word >> 63 == 0:
                bits.at += 1
            elif word >> 62 == 0b10:
                payload = (word << 2) >> 50
                step += payload - (1 << 14 if payload > 1 << 13 else 0)
                bits.at += 16
            elif word >> 61 == 0b110:
                payload = (word << 3) >> 47
                step += payload - (1 << 17 if payload > 1 << 16 else 0)
                bits.at += 20
            elif word >> 60 == 0b1110:
                payload = (word << 4) >> 44
                step += payload - (1 << 20 if payload > 1 << 19 else 0)
                bits.at += 24
            else:
                bits.at += 4
                step += take_bits(&bits, 64)
        time += step
        word = peek(&bits)
        if word >> 63 == 0:
            bits.at += 1
        else:
            bits.at += 2
            if word >> 62 == 0b11:
                high_zeros = <unsigned int>((word << 2) >> 59)
                width = <unsigned int>((word << 7) >> 58)
                if width == 0:
                    width = 64
                bits.at += 11
                if high_zeros + width > 64:
                    return _fail_at(fault, &bits, b"a bit window exceeds 64 bits")
                low_zeros = 64 - high_zeros - width
            elif width == 0:
                return _fail_at(fault, &bits, b"a value reuses a bit window that no earlier value defines")
            value ^= take_bits(&bits, width) << low_zeros
        if is_beyond(&bits):
            return _fail_at(fault, &bits, b"")
        times[position] = <int64_t>time
        values[position] = value
    return _check_padding(&bits, fault)


cdef int _varint_fault(XorFault* fault, const Cursor* head) noexcept nogil:
    if head.at >= head.size:
        return _fail(fault, TRUNCATED, head.size, b"the chunk ends inside a varint")
    return _fail(fault, BAD, head.at, b"a varint is longer than 64 bits")


cdef int _check_padding(const BitCursor* bits, XorFault* fault) noexcept nogil:
    cdef size_t over = 8 * bits.size - bits.at
    if over > PADDING_BITS_MAX:
        return _fail(fault, BAD, bits.at >> 3, b"more than eight bits follow the last sample")
    if over and peek(bits) >> (64 - over):
        return _fail(fault, BAD, bits.at >> 3, b"the bits after the last sample are not zero")
    return 0


cdef size_t encode_samples(const int64_t* times, const uint64_t* values, size_t count, uint8_t* out) noexcept nogil:
    """Encode 1 to 65,535 samples into ``out``, which has SAMPLE_BYTES_MAX for each and CHUNK_BYTES_EXTRA; the size."""
    cdef BitSink sink
    cdef size_t position
    cdef uint64_t step = 0, following
    cdef uint64_t difference
    cdef int64_t change
    cdef unsigned int width = 0, window_high = 0, window_low = 0, high, low
    sink.out = out
    sink.size = 0
    sink.pending = 0
    sink.pending_bits = 0
    sink.ends_in_byte = False
    put_bits(&sink, count, 16)
    _put_uvarint(&sink, zigzag_encode(times[0]))
    put_bits(&sink, values[0], 64)
    for position in range(1, count):
        following = <uint64_t>times[position] - <uint64_t>times[position - 1]
        if position == 1:
            _put_uvarint(&sink, following)
        else:
            change = <int64_t>(following - step)
            if change == 0:
                put_bits(&sink, 0, 1)
            elif -8191 <= change <= 8192:
                put_bits(&sink, (<uint64_t>0b10 << 14) | (<uint64_t>change & 0x3FFF), 16)
            elif -65535 <= change <= 65536:
                put_bits(&sink, (<uint64_t>0b110 << 17) | (<uint64_t>change & 0x1FFFF), 20)
            elif -524287 <= change <= 524288:
                put_bits(&sink, (<uint64_t>0b1110 << 20) | (<uint64_t>change & 0xFFFFF), 24)
            else:
                put_bits(&sink, 0b1111, 4)
                put_bits(&sink, <uint64_t>change, 64)
        step = following
        difference = values[position] ^ values[position - 1]
        if difference == 0:
            put_bits(&sink, 0, 1)
            continue
        high = <unsigned int>__builtin_clzll(difference)
        low = <unsigned int>__builtin_ctzll(difference)
        if high > HIGH_ZEROS_MAX:
            high = HIGH_ZEROS_MAX
        if width and high >= window_high and low >= window_low:
            put_bits(&sink, 0b10, 2)
        else:
            window_high, window_low = high, low
            width = 64 - high - low
            put_bits(&sink, (<uint64_t>0b11 << 11) | (<uint64_t>high << 6) | (width & 63), 13)
        put_bits(&sink, difference >> window_low, width)
    finish_bits(&sink)
    return sink.size


cdef void _put_uvarint(BitSink* sink, uint64_t value) noexcept nogil:
    while value > 0x7F:
        put_bits(sink, (value & 0x7F) | 0x80, 8)
        value >>= 7
    put_bits(sink, value, 8)


cdef int _raise(const XorFault* fault) except -1:
    raise ERRORS[fault.kind](SECTION, fault.offset, fault.reason.decode())


def decode_xor(const uint8_t[::1] data):
    """Return times and bit patterns of values of a float chunk. Raises BadObject if the bytes are invalid."""
    cdef XorFault fault
    cdef const uint8_t* start = &data[0] if data.shape[0] else NULL
    cdef int64_t count = xor_count(start, data.shape[0], &fault)
    cdef int64_t[::1] times
    cdef uint64_t[::1] values
    if count < 0:
        _raise(&fault)
    times_array, values_array = np.empty(count, np.int64), np.empty(count, np.uint64)
    times, values = times_array, values_array
    if decode_samples(start, data.shape[0], &times[0], &values[0], &fault) < 0:
        _raise(&fault)
    return times_array, values_array


def encode_xor(const int64_t[::1] times, const uint64_t[::1] values):
    """Return the chunk of these samples, byte-identical to Prometheus. Raises LimitExceeded for none or too many."""
    cdef Py_ssize_t count = times.shape[0]
    cdef size_t size
    cdef bytes out
    if not 0 < count <= COUNT_MAX or values.shape[0] != count:
        raise LimitExceeded(SECTION, -1, f"{count} times and {values.shape[0]} values in a chunk")
    out = PyBytes_FromStringAndSize(NULL, count * SAMPLE_BYTES_MAX + CHUNK_BYTES_EXTRA)
    size = encode_samples(&times[0], &values[0], count, <uint8_t*>PyBytes_AS_STRING(out))
    return out[:size]
