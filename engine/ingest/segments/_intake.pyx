"""The compiled half of a segment builder that sees one profile after the other: read, normalise, identify, group.

Agrees with the plain twin ``_intake_py`` on every profile. The columns are kept from one profile to the next, so that a
small one costs no allocation; those of a large one are given back.
"""

import hashlib
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

import numpy as np

from engine.core._byte_buffers cimport Buffer, buffer_free, buffer_reserve, put_bytes, put_u64, put_u8
from engine.formats.pprof._columns cimport Column, column_free, fill_zeros, push
from engine.ingest.segments._label_groups cimport gather, label_group_free, link_samples, links_free, narrow
from engine.ingest.segments._normal_profile cimport (
    normal_profile_free, normalise_columns, sample_count, strings_of, workspace_free,
)
from engine.formats.pprof._pprof cimport (
    ADDRESS, BUILD_ID, COLUMN_COUNT, COMMENTS, FILE_OFFSET, FOLDED, FUNCTION_FILENAME, FUNCTION_ID, FUNCTION_NAME,
    LABEL_KEYS, LABEL_NUMBERS, LABEL_STARTS, LABEL_STRINGS, LABEL_UNITS, LINE_FUNCTION, LINE_NUMBER, LINE_STARTS,
    LOCATION_ID, LOCATION_IDS, LOCATION_MAPPING, LOCATION_STARTS, MAPPING_FILENAME, MAPPING_FLAGS, MAPPING_ID,
    MEMORY_LIMIT, MEMORY_START, START_LINE, STRING_ENDS, STRING_STARTS, SYSTEM_NAME, TYPES, UNITS, VALUES,
    VALUE_STARTS, Header, Tables, message as parse_columns,
)
from engine.formats.profile_block.symbols._symbol_arrays cimport StringItem

from engine.core.errors import BadProfile
from engine.formats.pprof.pprof import uncompressed
from engine.formats.pprof.pprof_model import ENTRIES_MAX
from engine.ingest.segments.profile_identity import ID_BYTES, PERSON, sender_bytes
from engine.ingest.segments.split import with_sample_labels

cdef enum:
    ALONE_BYTES = 16384         # what is made of a smaller message is made sooner than another thread is woken up
    KEPT_ITEMS_MAX = 1048576    # items of all columns of a parsed profile up to which its memory is kept for the next

# The column that each one is as long as.
cdef dict _FIRST = {
    LOCATION_IDS: LOCATION_IDS, VALUES: VALUES,
    **{name: LABEL_KEYS for name in range(LABEL_KEYS, LABEL_UNITS + 1)},
    **{name: MAPPING_ID for name in range(MAPPING_ID, MAPPING_FLAGS + 1)},
    **{name: LOCATION_ID for name in range(LOCATION_ID, FOLDED + 1)},
    **{name: LINE_FUNCTION for name in range(LINE_FUNCTION, LINE_NUMBER + 1)},
    **{name: FUNCTION_ID for name in range(FUNCTION_ID, START_LINE + 1)},
}
cdef size_t PROFILE_ENTRIES_MAX = ENTRIES_MAX
cdef uint64_t SEED = int.from_bytes(os.urandom(8), "little")


cdef int _put_narrow(Buffer* out, const Column* column) except -1 nogil:
    """Append a column in the fewest bytes a number that hold its largest, after a byte that says so."""
    cdef uint64_t every = 0
    cdef size_t index, width = 1
    cdef uint8_t* place
    cdef uint16_t half
    cdef uint32_t word
    for index in range(column.count):
        every |= column.items[index]
    while width < sizeof(uint64_t) and every >> (8 * width):
        width *= 2
    put_u64(out, 1 + column.count * width)
    put_u8(out, <uint8_t>width)
    buffer_reserve(out, column.count * width)
    place = out.data + out.size
    if width == 1:
        for index in range(column.count):
            place[index] = <uint8_t>column.items[index]
    elif width == 2:
        for index in range(column.count):
            half = <uint16_t>column.items[index]
            memcpy(place + 2 * index, &half, sizeof(uint16_t))
    elif width == 4:
        for index in range(column.count):
            word = <uint32_t>column.items[index]
            memcpy(place + 4 * index, &word, sizeof(uint32_t))
    elif column.count:
        memcpy(place, column.items, column.count * width)
    out.size += column.count * width
    return 0


cdef class Intake:
    """Holds the profile it took last; not safe for several threads."""

    def __cinit__(self):
        self.tables = Tables()
        self.seed = SEED
        self.work.seed = SEED
        self.work.ids.seed = SEED
        self.held = b""

    def __dealloc__(self):
        self._free()

    cdef _free(self):
        normal_profile_free(&self.normal)
        workspace_free(&self.work)
        links_free(&self.links)
        label_group_free(&self.group)
        column_free(&self.members)
        column_free(&self.by_group)
        column_free(&self.group_starts)
        buffer_free(&self.raw_strings)
        buffer_free(&self.digested)

    cdef int clear(self) except -1:
        """Forget the profile, and its memory if that is much."""
        cdef size_t room = 0
        cdef int name
        for name in range(COLUMN_COUNT):
            room += self.tables.columns[name].room
            self.tables.columns[name].count = 0
        memset(&self.tables.header, 0, sizeof(Header))
        self.held = b""
        if room > KEPT_ITEMS_MAX:
            self.tables = Tables()
            self._free()
        return 0

    def take(self, profile, int64_t received_at_ns):
        """Read and normalise a profile, parsed or as the bytes of a message; BadProfile, Truncated or LimitExceeded."""
        cdef const uint8_t* data
        cdef size_t size
        self.clear()
        if isinstance(profile, bytes):
            self.held = uncompressed(profile)
            data, size = <const uint8_t*>PyBytes_AS_STRING(self.held), PyBytes_GET_SIZE(self.held)
            self.is_small = size < ALONE_BYTES
            if self.is_small:
                self._read_message(data, size)
            else:
                with nogil:
                    self._read_message(data, size)
        else:
            self._read_profile(profile)
            self._normalise()
        self.normal.time_ns = self.normal.time_ns or received_at_ns

    cdef int _normalise(self) except -1 nogil:
        cdef size_t count = self.raw_strings.size // sizeof(StringItem)
        return normalise_columns(
            &self.normal, &self.work, self.tables.columns, <const StringItem*>self.raw_strings.data, count
        )

    @property
    def sample_count(self):
        """Samples that are left."""
        return sample_count(self.normal.columns)

    cdef int _read_message(self, const uint8_t* data, size_t size) except -1 nogil:
        cdef Column* columns = self.tables.columns
        cdef Header* header = &self.tables.header
        cdef StringItem item
        cdef size_t index
        parse_columns(data, size, columns, header, PROFILE_ENTRIES_MAX)
        self.raw_strings.size = 0
        for index in range(columns[STRING_STARTS].count):
            item.data = data + columns[STRING_STARTS].items[index]
            item.size = <uint32_t>(columns[STRING_ENDS].items[index] - columns[STRING_STARTS].items[index])
            put_bytes(&self.raw_strings, &item, sizeof(StringItem))
        if columns[TYPES].count == 0:
            with gil:
                raise BadProfile("pprof", -1, "the profile has no sample types; is this a pprof profile?")
        self.normal.period_type, self.normal.period_unit = <int64_t>header.period_type[1], <int64_t>header.period_type[2]
        self.normal.drop_frames, self.normal.keep_frames = <int64_t>header.integers[7], <int64_t>header.integers[8]
        self.normal.time_ns, self.normal.duration_ns = <int64_t>header.integers[9], <int64_t>header.integers[10]
        self.normal.period, self.normal.default_sample_type = <int64_t>header.integers[12], <int64_t>header.integers[14]
        return self._normalise()

    cdef int _read_profile(self, profile) except -1:
        cdef StringItem item
        self._read_columns(profile)
        self._check_columns()
        self.held = b"".join(profile.strings)
        self.raw_strings.size = 0
        item.data = <const uint8_t*>PyBytes_AS_STRING(self.held)
        for string in profile.strings:
            item.size = <uint32_t>len(string)
            put_bytes(&self.raw_strings, &item, sizeof(StringItem))
            item.data += item.size
        self.normal.period_type, self.normal.period_unit = profile.period_type
        self.normal.drop_frames, self.normal.keep_frames = profile.drop_frames, profile.keep_frames
        self.normal.time_ns, self.normal.duration_ns = profile.time_ns, profile.duration_ns
        self.normal.period, self.normal.default_sample_type = profile.period, profile.default_sample_type
        return 0

    def _read_columns(self, profile):
        cdef int name = LOCATION_STARTS
        for table in (profile.samples, profile.mappings, profile.locations, profile.functions):
            for field in table.__slots__:   # in the order of the parser's columns
                self._read_column(name, getattr(table, field))
                name += 1
        types = np.array(profile.sample_types, np.int64).reshape(-1, 2)
        self._read_column(TYPES, types[:, 0])
        self._read_column(UNITS, types[:, 1])
        self._read_column(COMMENTS, np.array(profile.comments, np.int64))

    cdef int _check_columns(self) except -1:
        """Refuse a profile, made by our own code, whose columns do not fit each other: C would read beyond them."""
        cdef int name
        for name in range(LOCATION_STARTS, START_LINE + 1):
            if name == LOCATION_STARTS or name == VALUE_STARTS or name == LABEL_STARTS:
                self._check_starts(name, self.tables.columns[LOCATION_STARTS].count, name + 1)
            elif name == LINE_STARTS:
                self._check_starts(name, self.tables.columns[LOCATION_ID].count + 1, name + 1)
            elif self.tables.columns[name].count != self.tables.columns[_FIRST[name]].count:
                raise ValueError(f"columns {_FIRST[name]} and {name} of the profile have different lengths")
        return 0

    cdef int _check_starts(self, int name, size_t count, int items) except -1:
        cdef const uint64_t* starts = self.tables.columns[name].items
        cdef size_t index
        if count == 0 or self.tables.columns[name].count != count or starts[0] != 0:
            raise ValueError(f"column {name} of the profile has {self.tables.columns[name].count} starts, not {count}")
        for index in range(count - 1):
            if starts[index] > starts[index + 1]:
                raise ValueError(f"the starts in column {name} of the profile descend")
        if starts[count - 1] != self.tables.columns[items].count:
            raise ValueError(f"the starts in column {name} of the profile do not end with its items")
        return 0

    cdef int _read_column(self, int name, array) except -1:
        cdef uint64_t[::1] view = np.ascontiguousarray(array).astype(np.uint64)
        fill_zeros(&self.tables.columns[name], view.shape[0])
        if view.shape[0]:
            memcpy(self.tables.columns[name].items, &view[0], view.shape[0] * sizeof(uint64_t))
        return 0

    def identity(self, str tenant, labels):
        """Return the 16-byte ID of the profile pushed with these labels."""
        cdef bytes sender = sender_bytes(tuple(labels), tenant)
        self.digested.size = 0
        put_bytes(&self.digested, PyBytes_AS_STRING(sender), PyBytes_GET_SIZE(sender))
        self._put_columns()
        content = PyMemoryView_FromMemory(<char*>self.digested.data, self.digested.size, PyBUF_READ)
        return hashlib.blake2b(content, digest_size=ID_BYTES, person=PERSON).digest()

    cdef int _put_columns(self) except -1:
        cdef Column* columns = self.normal.columns
        cdef Buffer* out = &self.digested
        cdef const StringItem* strings = strings_of(&self.normal)
        cdef size_t count = self.normal.strings.size // sizeof(StringItem), index, total = 0
        cdef int name
        put_u64(out, (5 + 2 * columns[TYPES].count) * sizeof(uint64_t))
        put_u64(out, <uint64_t>self.normal.time_ns)
        put_u64(out, <uint64_t>self.normal.duration_ns)
        put_u64(out, <uint64_t>self.normal.period)
        for index in range(columns[TYPES].count):
            put_u64(out, columns[TYPES].items[index])
            put_u64(out, columns[UNITS].items[index])
        put_u64(out, <uint64_t>self.normal.period_type)
        put_u64(out, <uint64_t>self.normal.period_unit)
        put_u64(out, count * sizeof(uint64_t))
        for index in range(count):
            put_u64(out, strings[index].size)
            total += strings[index].size
        put_u64(out, total)
        for index in range(count):
            put_bytes(out, strings[index].data, strings[index].size)
        for name in range(LOCATION_STARTS, START_LINE + 1):
            _put_narrow(out, &columns[name])
        return 0

    cdef bytes string(self, uint64_t ref):
        cdef StringItem item = strings_of(&self.normal)[ref]
        return (<const char*>item.data)[:item.size]

    cdef list label_groups(self, external):
        """Return (labels, numbers of the groups with them) in the order the segment has them."""
        cdef size_t number
        with nogil:
            link_samples(&self.links, &self.normal, self.seed)
            self._sort_by_group()
        groups = sorted([(self._group_pairs(number), number) for number in range(self.links.shared_starts.count - 1)])
        joined = {}
        for pairs, number in groups:
            names = [(self.string(key), self.string(value)) for key, value in pairs]
            joined.setdefault(with_sample_labels(external, names), []).append(number)
        return list(joined.items())

    cdef object _group_pairs(self, size_t number):
        cdef size_t index
        cdef uint64_t* shared = self.links.shared.items
        cdef uint64_t* starts = self.links.shared_starts.items
        return tuple([
            (<uint32_t>shared[index], shared[index] >> 32) for index in range(starts[number], starts[number + 1])
        ])

    cdef int _sort_by_group(self) except -1 nogil:
        """List the samples group by group, each in their order."""
        cdef size_t groups = self.links.shared_starts.count - 1, count = self.links.groups.count, index
        cdef const uint64_t* group_of = self.links.groups.items
        cdef uint64_t* starts
        fill_zeros(&self.group_starts, groups + 2)
        fill_zeros(&self.by_group, count)
        starts = self.group_starts.items    # one ahead, until all are distributed out
        for index in range(count):
            starts[group_of[index] + 2] += 1
        for index in range(2, groups + 2):
            starts[index] += starts[index - 1]
        for index in range(count):
            self.by_group.items[starts[group_of[index] + 1]] = index
            starts[group_of[index] + 1] += 1
        return 0

    cdef int gather(self, list groups, bint is_part) except -1:
        """Make ``group`` of the samples of these groups; its own tables only if it is a part of the profile."""
        cdef size_t number, index
        self.members.count = 0
        for number in groups:
            for index in range(self.group_starts.items[number], self.group_starts.items[number + 1]):
                push(&self.members, self.by_group.items[index])
        with nogil:
            gather(&self.group, &self.normal, &self.links, &self.members, self.seed)
            if is_part:
                narrow(&self.group, &self.normal)
        return 0
