"""Tells, without making a single Python object of it, that a pushed profile may be kept exactly as it came.

Most pushes are in order, and a distributor passes their bytes on. Whatever is not goes through the plain checks, which
know what to cut and how to say what is wrong; ``ingest.profile_checks`` decides, this must only never pass more.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memchr

from engine.formats.pprof._columns cimport Column
from engine.formats.pprof._pprof cimport (
    BUILD_ID, COMMENTS, FUNCTION_FILENAME, FUNCTION_ID, FUNCTION_NAME, LABEL_KEYS, LABEL_STARTS,
    LABEL_STRINGS, LABEL_UNITS, LOCATION_ID, LOCATION_STARTS, MAPPING_FILENAME, STRING_ENDS, STRING_STARTS, SYSTEM_NAME,
    TYPES, UNITS, VALUE_STARTS, Header, Tables, message as parse_columns,
)

from engine.core.errors import BadObject
from engine.formats.pprof.pprof_model import ENTRIES_MAX

cdef extern from "csrc/utf8.h":
    bint lithify_is_utf8(const uint8_t* data, size_t size) noexcept nogil

cdef enum:
    ALONE_BYTES = 65536     # a smaller message is screened sooner than another thread is woken up

cdef size_t PROFILE_ENTRIES_MAX = ENTRIES_MAX

ctypedef struct Limits:
    int64_t oldest_ns
    int64_t newest_ns
    size_t samples
    size_t labels
    size_t frames
    size_t symbol_bytes


def is_in_order(bytes message not None, *, int64_t oldest_ns, int64_t newest_ns, size_t samples_max,
                size_t sample_labels_max, size_t stack_frames_max, size_t symbol_bytes_max):
    """Tell whether a bare pprof message passes every check of a push and loses nothing; times are exclusive bounds."""
    cdef Tables tables = Tables()
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(message)
    cdef size_t size = PyBytes_GET_SIZE(message)
    cdef Limits limits = Limits(
        oldest_ns, newest_ns, samples_max, sample_labels_max, stack_frames_max, symbol_bytes_max
    )
    cdef bint passes
    try:
        if size < ALONE_BYTES:
            passes = _screen(data, size, tables.columns, &tables.header, &limits)
        else:
            with nogil:
                passes = _screen(data, size, tables.columns, &tables.header, &limits)
        return passes
    except BadObject:
        return False


cdef bint _screen(const uint8_t* data, size_t size, Column* columns, Header* header,
                  const Limits* limits) except -1 nogil:
    parse_columns(data, size, columns, header, PROFILE_ENTRIES_MAX)
    return _passes(data, columns, header, limits)


cdef bint _passes(const uint8_t* data, const Column* columns, const Header* header, const Limits* limits) noexcept nogil:
    cdef size_t strings = columns[STRING_STARTS].count
    return (
        _is_in_time(header, limits)
        and _has_good_strings(data, columns, limits)
        and _are_inside(columns, header, strings)
        and not _has_zero(&columns[LOCATION_ID]) and not _has_zero(&columns[FUNCTION_ID])
        and columns[TYPES].count > 0 and _has_no_dash(data, columns)
        and columns[LOCATION_STARTS].count - 1 <= limits.samples
        and _widest(&columns[LABEL_STARTS]) <= limits.labels
        and _widest(&columns[LOCATION_STARTS]) <= limits.frames
        and _are_all(&columns[VALUE_STARTS], columns[TYPES].count)
    )


cdef bint _is_in_time(const Header* header, const Limits* limits) noexcept nogil:
    cdef int64_t time_ns = <int64_t>header.integers[9]
    if time_ns < 0 or <int64_t>header.integers[10] < 0:
        return False
    return time_ns == 0 or limits.oldest_ns < time_ns < limits.newest_ns


cdef bint _has_good_strings(const uint8_t* data, const Column* columns, const Limits* limits) noexcept nogil:
    cdef const uint64_t* starts = columns[STRING_STARTS].items
    cdef const uint64_t* ends = columns[STRING_ENDS].items
    cdef size_t index
    if columns[STRING_STARTS].count == 0 or starts[0] != ends[0]:
        return False
    for index in range(columns[STRING_STARTS].count):
        if ends[index] - starts[index] > limits.symbol_bytes:
            return False
        if not lithify_is_utf8(data + starts[index], ends[index] - starts[index]):
            return False
    return True


cdef bint _are_inside(const Column* columns, const Header* header, size_t strings) noexcept nogil:
    """Tell whether every reference to a string is one; negative ones are huge here."""
    cdef int[11] names = [
        TYPES, UNITS, COMMENTS, MAPPING_FILENAME, BUILD_ID, FUNCTION_NAME, SYSTEM_NAME, FUNCTION_FILENAME, LABEL_KEYS,
        LABEL_STRINGS, LABEL_UNITS,
    ]
    cdef const Column* column
    cdef size_t index
    cdef int which
    cdef bint inside = (
        header.period_type[1] < strings and header.period_type[2] < strings
        and header.integers[7] < strings and header.integers[8] < strings and header.integers[14] < strings
    )
    for which in range(11):
        column = &columns[names[which]]
        for index in range(column.count):
            inside = inside and column.items[index] < strings
    return inside


cdef bint _has_zero(const Column* column) noexcept nogil:
    cdef size_t index
    for index in range(column.count):
        if column.items[index] == 0:
            return True
    return False


cdef bint _has_no_dash(const uint8_t* data, const Column* columns) noexcept nogil:
    """Tell whether the names of all sample types, which are inside the table, are without a dash."""
    cdef size_t index
    cdef uint64_t start, end
    for index in range(columns[TYPES].count):
        start = columns[STRING_STARTS].items[columns[TYPES].items[index]]
        end = columns[STRING_ENDS].items[columns[TYPES].items[index]]
        if memchr(data + start, c"-", end - start) != NULL:
            return False
    return True


cdef size_t _widest(const Column* starts) noexcept nogil:
    cdef size_t index, most = 0
    for index in range(1, starts.count):
        most = max(most, <size_t>(starts.items[index] - starts.items[index - 1]))
    return most


cdef bint _are_all(const Column* starts, size_t width) noexcept nogil:
    cdef size_t index
    for index in range(1, starts.count):
        if starts.items[index] - starts.items[index - 1] != width:
            return False
    return True
