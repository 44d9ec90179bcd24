"""Read and check chunks of the sources of a series merge; only inline C, not a module of its own."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from engine.core._byte_buffers cimport Cursor, be32, cursor_over, left, read_uvarint
from engine.core._checksum_kernels cimport crc32c_of
from engine.lanes.tsdb.merge._sample_merge cimport Samples, make_room
from engine.formats.prometheus.chunks._xor cimport XorFault, decode_samples, xor_count

cdef enum:
    BAD = 0
    TRUNCATED = 1
    LIMIT = 2  # the codes up to here are those of _xor.pyx
    REFERENCE = 3
    CHECKSUM = 4
    FORMAT = 5
    ORDER = 6
    CONTRADICTION = 7
    REFUSED = 8  # limit of all blocks together

    MERGED = 0
    FAULTY = 1
    RARE = 2

    HEADER_BYTES = 8
    CRC_BYTES = 4
    CHUNK_BYTES_MAX = 64 << 20
    ENCODING_XOR = 1
    ENCODING_XOR2 = 4
    ENCODING_14_BITS = 5  # this encoding and the next have counts of 14 bits
    ENCODING_LAST = 6

cdef extern from *:
    """
    #define LITHIFY_OVERLAY_FILE 0xFFFFFFFFULL
    """
    const uint64_t OVERLAY "LITHIFY_OVERLAY_FILE"

ctypedef struct Source:
    const uint8_t** files
    size_t* file_sizes
    size_t file_count
    const uint8_t* overlay
    size_t overlay_size
    size_t series
    size_t next_series  # the current series is the one before
    bint has_ended
    const int64_t* label_starts
    const uint32_t* label_refs
    const int64_t* chunk_starts
    const int64_t* min_times
    const int64_t* max_times
    const uint64_t* chunk_refs

ctypedef struct Piece:
    const uint8_t* sealed  # encoding, data, checksum
    size_t size  # of encoding and data
    size_t record_bytes
    int64_t min_time
    int64_t max_time
    uint64_t ref
    uint32_t source
    uint32_t samples

ctypedef struct Fault:
    int kind
    uint32_t source
    uint64_t ref
    size_t offset  # added to the reference's offset
    const char* reason


cdef inline int fail(Fault* fault, int kind, uint32_t source, uint64_t ref, size_t offset,
                     const char* reason) noexcept nogil:
    fault.kind = kind
    fault.source = source
    fault.ref = ref
    fault.offset = offset
    fault.reason = reason
    return FAULTY


cdef inline uint32_t sample_count(const uint8_t* sealed) noexcept nogil:
    cdef uint32_t count = (<uint32_t>sealed[1] << 8) | sealed[2]
    return count & 0x3FFF if sealed[0] >= ENCODING_14_BITS else count


cdef inline bint is_float(uint8_t encoding) noexcept nogil:
    return encoding == ENCODING_XOR or encoding == ENCODING_XOR2


cdef inline bint is_earlier(const Piece* one, const Piece* other) noexcept nogil:
    return one.min_time < other.min_time or (one.min_time == other.min_time and one.max_time < other.max_time)


cdef inline bint is_same(const Piece* one, const Piece* other) noexcept nogil:
    return (one.min_time == other.min_time and one.max_time == other.max_time and one.size == other.size
            and (one.sealed == other.sealed or memcmp(one.sealed, other.sealed, one.size) == 0))


cdef inline int read_piece(const Source* source, Piece* piece, const Piece* like, Fault* fault) noexcept nogil:
    """Find and check the record of a piece, whose reference, source and times are set.

    ``like``, if not NULL, is a checked piece. A record with the same bytes, checksum included, is not checked again, so
    identical replicas are checked once.
    """
    cdef uint64_t number = piece.ref >> 32, size
    cdef size_t offset = <size_t>(piece.ref & 0xFFFFFFFFu), start
    cdef Cursor cursor
    if number == OVERLAY:
        cursor = cursor_over(source.overlay, source.overlay_size)
    elif number < source.file_count:
        cursor = cursor_over(source.files[number], source.file_sizes[number])
    else:
        return fail(fault, REFERENCE, piece.source, piece.ref, 0, b"the block has no such chunk file")
    if offset < HEADER_BYTES or offset >= cursor.size:
        return fail(fault, REFERENCE, piece.source, piece.ref, 0, b"invalid offset of a chunk record")
    cursor.at = offset
    size = read_uvarint(&cursor)
    if cursor.failed:
        return fail(fault, BAD if cursor.at < cursor.size else TRUNCATED, piece.source, piece.ref, 0,
                    b"invalid length of a chunk")
    if size > CHUNK_BYTES_MAX:
        return fail(fault, LIMIT, piece.source, piece.ref, 0, b"a chunk exceeds the maximum length")
    if size + 1 + CRC_BYTES > left(&cursor):
        return fail(fault, TRUNCATED, piece.source, piece.ref, 0, b"the file ends inside a record")
    start = cursor.at - offset
    piece.sealed = cursor.data + cursor.at
    piece.size = <size_t>size + 1
    piece.record_bytes = start + piece.size + CRC_BYTES
    if (like != NULL and like.size == piece.size
            and memcmp(like.sealed, piece.sealed, piece.size + CRC_BYTES) == 0):
        piece.sealed, piece.samples = like.sealed, like.samples
        return MERGED
    if crc32c_of(piece.sealed, piece.size) != be32(piece.sealed + piece.size):
        return fail(fault, CHECKSUM, piece.source, piece.ref, start, b"the stored checksum is not that of the bytes")
    if not 0 < piece.sealed[0] <= ENCODING_LAST:
        return fail(fault, FORMAT, piece.source, piece.ref, start, b"an unknown encoding of a chunk")
    piece.samples = sample_count(piece.sealed) if size >= 2 else 0
    if piece.samples == 0:
        return fail(fault, BAD, piece.source, piece.ref, start, b"a chunk without samples")
    return MERGED


cdef inline int decode_piece(const Piece* piece, Samples* samples, Fault* fault) except -1 nogil:
    """Append the samples of a float chunk and compare their times with the index."""
    cdef XorFault found
    cdef const uint8_t* data = piece.sealed + 1
    cdef int64_t count = xor_count(data, piece.size - 1, &found)
    cdef int64_t* times
    cdef int64_t position
    cdef bint ascends = True
    if count < 0:
        return fail(fault, found.kind, piece.source, piece.ref, found.offset, found.reason)
    make_room(samples, samples.count + <size_t>count)
    times = samples.times + samples.count
    if decode_samples(data, piece.size - 1, times, samples.values + samples.count, &found) < 0:
        return fail(fault, found.kind, piece.source, piece.ref, found.offset, found.reason)
    for position in range(1, count):
        ascends &= times[position] > times[position - 1]
    if not ascends:
        return fail(fault, ORDER, piece.source, piece.ref, 0, b"the samples of a chunk do not ascend in time")
    if times[0] != piece.min_time or times[count - 1] != piece.max_time:
        return fail(fault, CONTRADICTION, piece.source, piece.ref, 0, b"the times of a chunk differ from the index")
    samples.count += <size_t>count
    return MERGED
