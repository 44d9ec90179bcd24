"""Compiled implementation of ``engine.lanes.tsdb.merge.sound_chunks``."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc

from engine.core._byte_buffers cimport Cursor, be32, cursor_over, read_uvarint, take
from engine.core._checksum_kernels cimport crc32c_of
from engine.formats.prometheus.chunks._xor cimport XorFault, decode_samples, xor_count

from engine.formats.prometheus.chunks import chunk_files
from engine.formats.prometheus import model

cdef enum:
    CRC_BYTES = 4
    SAMPLES_MAX = 65535

cdef uint64_t HEADER_BYTES = chunk_files.HEADER_BYTES
cdef uint64_t CHUNK_BYTES_MAX = chunk_files.CHUNK_BYTES_MAX
cdef int OFFSET_BITS = chunk_files.OFFSET_BITS
cdef uint8_t ENCODING_XOR = model.ENCODING_XOR


cdef class _File:
    """The bytes of a chunk file."""

    cdef const uint8_t[::1] held
    cdef const uint8_t* data
    cdef size_t size

    def __cinit__(self, const uint8_t[::1] data):
        self.held = data
        self.size = data.shape[0]
        self.data = &data[0] if self.size else NULL


cdef int64_t _samples_of(const uint8_t* data, size_t size, uint64_t offset, int64_t first_ms, int64_t last_ms,
                         int64_t* times, uint64_t* values) noexcept nogil:
    """Return the number of samples of the chunk at ``offset``, -1 if it is not a valid float chunk."""
    cdef Cursor cursor = cursor_over(data, size)
    cdef XorFault fault
    cdef uint64_t length
    cdef const uint8_t* sealed
    cdef int64_t count, position
    if not HEADER_BYTES <= offset < size:
        return -1
    cursor.at = offset
    length = read_uvarint(&cursor)
    if cursor.failed or length > CHUNK_BYTES_MAX:
        return -1
    sealed = take(&cursor, length + 1 + CRC_BYTES)
    if sealed == NULL or sealed[0] != ENCODING_XOR:
        return -1
    if crc32c_of(sealed, length + 1) != be32(sealed + length + 1):
        return -1
    count = xor_count(sealed + 1, length, &fault)
    if count < 0 or decode_samples(sealed + 1, length, times, values, &fault) < 0:
        return -1
    if times[0] != first_ms or times[count - 1] != last_ms:
        return -1
    for position in range(1, count):
        if times[position] <= times[position - 1]:
            return -1
    return count


def sound_float_chunks(files, batch, Py_ssize_t first):
    """Return the end of the run of valid float chunks from ``first`` on, and its number of samples.

    A valid chunk has encoding 1, a readable record and readable samples, ascending times, and the first and last time
    of the index. The chunk that ends the run may have another encoding; the caller checks it.
    """
    cdef list held = [_File(data) for data in files]
    cdef const int64_t[::1] min_times = batch.min_times
    cdef const int64_t[::1] max_times = batch.max_times
    cdef const uint64_t[::1] refs = batch.chunk_refs
    cdef Py_ssize_t position
    cdef Py_ssize_t count = refs.shape[0]
    cdef int64_t found
    cdef int64_t samples = 0
    cdef uint64_t number
    cdef _File file
    cdef int64_t* times = <int64_t*>malloc(SAMPLES_MAX * sizeof(int64_t))
    cdef uint64_t* values = <uint64_t*>malloc(SAMPLES_MAX * sizeof(uint64_t))
    try:
        if times == NULL or values == NULL:
            raise MemoryError
        for position in range(first, count):
            number = refs[position] >> OFFSET_BITS
            if number >= <uint64_t>len(held):
                return position, samples
            file = held[number]
            with nogil:
                found = _samples_of(
                    file.data, file.size, refs[position] & ((<uint64_t>1 << OFFSET_BITS) - 1),
                    min_times[position], max_times[position], times, values,
                )
            if found < 0:
                return position, samples
            samples += found
        return count, samples
    finally:
        free(times)
        free(values)
