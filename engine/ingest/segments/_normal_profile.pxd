"""A normalised profile as C columns, and the working memory of making one: see the .pyx."""

from libc.stdint cimport int64_t, uint64_t

from engine.core._byte_buffers cimport Buffer
from engine.formats.pprof._columns cimport Column
from engine.formats.profile_block.symbols._interning cimport Slots
from engine.formats.pprof._pprof cimport COLUMN_COUNT
from engine.formats.profile_block.symbols._symbol_arrays cimport StringItem


ctypedef struct NormalProfile:
    Column columns[COLUMN_COUNT]    # as the parser names them; STRING_STARTS and STRING_ENDS are not used
    Buffer strings                  # StringItem each, pointing into the message
    int64_t time_ns
    int64_t duration_ns
    int64_t period
    int64_t period_type
    int64_t period_unit
    int64_t drop_frames
    int64_t keep_frames
    int64_t default_sample_type


ctypedef struct IdTable:
    const uint64_t* ids
    Column direct           # position + 1 by id, if ids are small
    Slots slots             # else
    uint64_t seed
    bint is_direct


ctypedef struct KeptSample:
    uint64_t hash
    size_t start            # its key: locations, then labels, among the keys
    size_t labels
    size_t end


ctypedef struct Ordered:
    uint64_t hash
    uint64_t number


ctypedef struct Workspace:
    uint64_t seed
    uint64_t empty          # where the empty string was
    IdTable ids
    Slots slots
    Column function_ids
    Column line_functions   # by line as parsed: position of the function + 1
    Column mapping_ids      # by location as parsed: its new mapping id
    Column kept_ids         # by location as parsed: its number among the valid ones, from 1; 0 if it goes
    Column kept_locations   # by that number: the location as parsed
    Column new_locations    # by that number: the final id; 0 if nothing reaches it
    Column new_functions    # by position as parsed
    Column keys
    Column values           # of the kept samples, one for each sample type
    Column sums
    Buffer kept             # KeptSample each
    Buffer order            # Ordered each


cdef void normal_profile_free(NormalProfile* profile) noexcept nogil
cdef void workspace_free(Workspace* work) noexcept nogil
cdef int normalise_columns(NormalProfile* out, Workspace* work, const Column* raw, const StringItem* strings,
                           size_t string_count) except -1 nogil


cdef inline const StringItem* strings_of(const NormalProfile* profile) noexcept nogil:
    return <const StringItem*>profile.strings.data


cdef inline size_t sample_count(const Column* columns) noexcept nogil:
    return columns[0].count - 1
