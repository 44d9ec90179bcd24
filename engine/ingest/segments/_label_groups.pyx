"""The compiled twin of ``split`` but for names: which samples share their labels, their spans, and what a group reaches.

Agrees with ``engine.ingest.segments.split``; the labels of a group are made by that module itself.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

from engine.formats.pprof._columns cimport Column, column_free, fill_zeros, push, reserve
from engine.formats.profile_block.symbols._interning cimport (
    Slots, lithify_hash_bytes, lithify_mix, slots_fill, slots_free, slots_make_room, tag_of,
)
from engine.ingest.segments._normal_profile cimport NormalProfile, sample_count, strings_of
from engine.formats.pprof._pprof cimport (
    ADDRESS, COLUMN_COUNT, FOLDED, FUNCTION_ID, FUNCTION_NAME, LABEL_KEYS, LABEL_STARTS, LABEL_STRINGS, LINE_FUNCTION,
    LINE_NUMBER, LINE_STARTS, LOCATION_ID, LOCATION_IDS, LOCATION_MAPPING, LOCATION_STARTS, MAPPING_FLAGS, MAPPING_ID,
    MEMORY_START, START_LINE, TYPES, UNITS, VALUES, VALUE_STARTS,
)
from engine.formats.profile_block.symbols._symbol_arrays cimport StringItem

cdef enum:
    SPAN_BYTES = 8
    TRACE_BYTES = 16

cdef enum Meaning:
    SHARED
    SPAN
    TRACE


cdef void links_free(Links* links) noexcept nogil:
    column_free(&links.groups)
    column_free(&links.shared)
    column_free(&links.shared_starts)
    column_free(&links.spans)
    column_free(&links.traces)
    column_free(&links.has_trace)


cdef void label_group_free(LabelGroup* group) noexcept nogil:
    cdef int name
    for name in range(COLUMN_COUNT):
        column_free(&group.columns[name])
    column_free(&group.spans)
    column_free(&group.traces)
    column_free(&group.has_trace)
    column_free(&group.locations)
    column_free(&group.functions)
    column_free(&group.mappings)


cdef inline Meaning _meaning(StringItem key) noexcept nogil:
    if key.size == 7 and memcmp(key.data, b"span_id", 7) == 0:
        return SPAN
    if key.size == 10 and memcmp(key.data, b"profile_id", 10) == 0:
        return SPAN
    if key.size == 8 and memcmp(key.data, b"trace_id", 8) == 0:
        return TRACE
    return SHARED


cdef inline int _nibble(uint8_t digit) noexcept nogil:
    if c"0" <= digit <= c"9":
        return digit - c"0"
    if c"a" <= digit <= c"f":
        return digit - c"a" + 10
    if c"A" <= digit <= c"F":
        return digit - c"A" + 10
    return -1


cdef bint _read_hex(StringItem text, uint8_t* out, size_t size) noexcept nogil:
    """Read so many bytes spelled in hexadecimal; False, and nothing to be used, if the text is anything else."""
    cdef int high, low
    cdef size_t index
    if text.size != 2 * size:
        return False
    for index in range(size):
        high, low = _nibble(text.data[2 * index]), _nibble(text.data[2 * index + 1])
        if high < 0 or low < 0:
            return False
        out[index] = <uint8_t>(16 * high + low)
    return True


cdef bint knows_spans(const NormalProfile* profile) noexcept nogil:
    """Tell whether the profile's table has a name of a span label, used or not."""
    cdef size_t index
    for index in range(profile.strings.size // sizeof(StringItem)):
        if _meaning(strings_of(profile)[index]) == SPAN:
            return True
    return False


cdef int link_samples(Links* links, const NormalProfile* profile, uint64_t seed) except -1 nogil:
    """Fill in the group, span and trace of every sample; groups are numbered as they are met."""
    cdef size_t count = sample_count(profile.columns), index
    cdef Slots slots
    memset(&slots, 0, sizeof(Slots))
    fill_zeros(&links.groups, count)
    fill_zeros(&links.spans, count)
    fill_zeros(&links.traces, 2 * count)
    fill_zeros(&links.has_trace, count)
    links.shared.count = links.shared_starts.count = 0
    push(&links.shared_starts, 0)
    try:
        for index in range(count):
            _link_sample(links, profile, index)
            links.groups.items[index] = _group_of(links, &slots, seed)
    finally:
        slots_free(&slots)
    return 0


cdef int _link_sample(Links* links, const NormalProfile* profile, size_t sample) except -1 nogil:
    """Read a sample's span and trace, and append its other labels to the shared ones."""
    cdef const StringItem* strings = strings_of(profile)
    cdef const uint64_t* keys = profile.columns[LABEL_KEYS].items
    cdef const uint64_t* values = profile.columns[LABEL_STRINGS].items
    cdef uint64_t words[2]
    cdef size_t index
    cdef Meaning meaning
    for index in range(profile.columns[LABEL_STARTS].items[sample], profile.columns[LABEL_STARTS].items[sample + 1]):
        meaning = _meaning(strings[keys[index]])
        if meaning == SHARED:
            push(&links.shared, (values[index] << 32) | keys[index])
        elif meaning == SPAN:
            if links.spans.items[sample] == 0 and _read_hex(strings[values[index]], <uint8_t*>words, SPAN_BYTES):
                links.spans.items[sample] = words[0]
        elif not links.has_trace.items[sample] and _read_hex(strings[values[index]], <uint8_t*>words, TRACE_BYTES):
            links.has_trace.items[sample] = 1
            links.traces.items[2 * sample], links.traces.items[2 * sample + 1] = words[0], words[1]
    return 0


cdef uint64_t _group_of(Links* links, Slots* slots, uint64_t seed) except? 0xFFFFFFFF nogil:
    """Return the group of the labels appended last; those of a known group are taken away again."""
    cdef size_t number = links.shared_starts.count - 1, position, other, start, words
    cdef const uint64_t* shared = links.shared.items
    cdef const uint64_t* starts = links.shared_starts.items
    cdef uint32_t tag
    start = starts[number]
    words = links.shared.count - start
    slots_make_room(slots)
    tag = tag_of(lithify_hash_bytes(seed, <const uint8_t*>(shared + start), words * sizeof(uint64_t)))
    position = tag & slots.mask
    while slots.entries[position]:
        if slots.entries[position] >> 32 == tag:
            other = <uint32_t>slots.entries[position] - 1
            if starts[other + 1] - starts[other] == words and (
                words == 0 or memcmp(shared + starts[other], shared + start, words * sizeof(uint64_t)) == 0
            ):
                links.shared.count = start
                return other
        position = (position + 1) & slots.mask
    slots_fill(slots, position, tag, number)
    push(&links.shared_starts, links.shared.count)
    return number


cdef int gather(LabelGroup* group, const NormalProfile* profile, const Links* links, const Column* members,
                uint64_t seed) except -1 nogil:
    """Fill the group's samples with these members, those of equal stack, span and trace joined; no labels."""
    cdef Column kept = Column(NULL, 0, 0)
    cdef Slots slots
    cdef size_t index
    memset(&slots, 0, sizeof(Slots))
    for index in range(LOCATION_STARTS, VALUES + 1):
        group.columns[index].count = 0
    group.spans.count = group.traces.count = group.has_trace.count = 0
    push(&group.columns[LOCATION_STARTS], 0)
    push(&group.columns[VALUE_STARTS], 0)
    try:
        for index in range(members.count):
            _add_member(group, profile, links, members.items[index], &kept, &slots, seed)
    finally:
        slots_free(&slots)
        column_free(&kept)
    return 0


cdef int _add_member(LabelGroup* group, const NormalProfile* profile, const Links* links, size_t sample, Column* kept,
                     Slots* slots, uint64_t seed) except -1 nogil:
    """Add a sample, or its values to the one like it; ``kept`` says which sample each of the group was."""
    cdef size_t types = profile.columns[TYPES].count, position, other, index
    cdef const uint64_t* values = profile.columns[VALUES].items + profile.columns[VALUE_STARTS].items[sample]
    cdef uint32_t tag = tag_of(_link_hash(profile, links, sample, seed))
    slots_make_room(slots)
    position = tag & slots.mask
    while slots.entries[position]:
        other = <uint32_t>slots.entries[position] - 1
        if slots.entries[position] >> 32 == tag and _are_alike(profile, links, kept.items[other], sample):
            for index in range(types):
                group.columns[VALUES].items[other * types + index] += values[index]
            return 0
        position = (position + 1) & slots.mask
    slots_fill(slots, position, tag, kept.count)
    push(kept, sample)
    for index in range(profile.columns[LOCATION_STARTS].items[sample], profile.columns[LOCATION_STARTS].items[sample + 1]):
        push(&group.columns[LOCATION_IDS], profile.columns[LOCATION_IDS].items[index])
    for index in range(types):
        push(&group.columns[VALUES], values[index])
    push(&group.columns[LOCATION_STARTS], group.columns[LOCATION_IDS].count)
    push(&group.columns[VALUE_STARTS], group.columns[VALUES].count)
    push(&group.spans, links.spans.items[sample])
    push(&group.has_trace, links.has_trace.items[sample])
    push(&group.traces, links.traces.items[2 * sample])
    return push(&group.traces, links.traces.items[2 * sample + 1])


cdef uint64_t _link_hash(const NormalProfile* profile, const Links* links, size_t sample, uint64_t seed) noexcept nogil:
    cdef size_t start = profile.columns[LOCATION_STARTS].items[sample]
    cdef size_t words = profile.columns[LOCATION_STARTS].items[sample + 1] - start
    cdef uint64_t hash = lithify_mix(seed, links.spans.items[sample])
    hash = lithify_mix(hash, links.traces.items[2 * sample])
    hash = lithify_mix(hash, links.traces.items[2 * sample + 1])
    return lithify_hash_bytes(
        hash, <const uint8_t*>(profile.columns[LOCATION_IDS].items + start), words * sizeof(uint64_t)
    )


cdef bint _are_alike(const NormalProfile* profile, const Links* links, size_t one, size_t other) noexcept nogil:
    cdef const uint64_t* starts = profile.columns[LOCATION_STARTS].items
    cdef const uint64_t* ids = profile.columns[LOCATION_IDS].items
    cdef size_t words = starts[one + 1] - starts[one]
    return (
        links.spans.items[one] == links.spans.items[other]
        and links.has_trace.items[one] == links.has_trace.items[other]
        and links.traces.items[2 * one] == links.traces.items[2 * other]
        and links.traces.items[2 * one + 1] == links.traces.items[2 * other + 1]
        and starts[other + 1] - starts[other] == words
        and (words == 0 or memcmp(ids + starts[one], ids + starts[other], words * sizeof(uint64_t)) == 0)
    )


cdef inline uint64_t _met(Column* numbers, uint64_t old, uint64_t* count) noexcept nogil:
    """Return the new number of an old one, the next if it is met for the first time."""
    if numbers.items[old] == 0:
        count[0] += 1
        numbers.items[old] = count[0]
    return numbers.items[old]


cdef int narrow(LabelGroup* group, const NormalProfile* profile) except -1 nogil:
    """Fill the group's tables with what its samples reach, every table in the order it is first met."""
    cdef const Column* source = <const Column*>profile.columns
    cdef Column* columns = group.columns
    cdef uint64_t locations = 0, functions = 0, mappings = 0
    cdef size_t index, at
    cdef int name
    fill_zeros(&group.locations, source[LOCATION_ID].count + 1)
    fill_zeros(&group.functions, source[FUNCTION_ID].count + 1)
    fill_zeros(&group.mappings, source[MAPPING_ID].count + 1)
    for name in range(MAPPING_ID, START_LINE + 1):
        columns[name].count = 0
    columns[TYPES].count = columns[UNITS].count = 0
    for index in range(source[TYPES].count):
        push(&columns[TYPES], source[TYPES].items[index])
        push(&columns[UNITS], source[UNITS].items[index])
    push(&columns[LINE_STARTS], 0)
    for index in range(columns[LOCATION_IDS].count):
        at = columns[LOCATION_IDS].items[index] - 1
        columns[LOCATION_IDS].items[index] = _met(&group.locations, at + 1, &locations)
        if locations > columns[LOCATION_ID].count:
            _add_location(group, profile, at, &functions, &mappings)
    return 0


cdef int _add_location(LabelGroup* group, const NormalProfile* profile, size_t at, uint64_t* functions,
                       uint64_t* mappings) except -1 nogil:
    """Append a location that is met for the first time, and its mapping and functions unless they are known."""
    cdef const Column* source = <const Column*>profile.columns
    cdef Column* columns = group.columns
    cdef size_t line, old
    push(&columns[LOCATION_ID], columns[LOCATION_ID].count + 1)
    push(&columns[ADDRESS], source[ADDRESS].items[at])
    push(&columns[FOLDED], source[FOLDED].items[at])
    old = source[LOCATION_MAPPING].items[at]
    push(&columns[LOCATION_MAPPING], _met(&group.mappings, old, mappings))
    if mappings[0] > columns[MAPPING_ID].count:
        _add_row(columns, source, old - 1, MAPPING_ID, MEMORY_START, MAPPING_FLAGS)
    for line in range(source[LINE_STARTS].items[at], source[LINE_STARTS].items[at + 1]):
        old = source[LINE_FUNCTION].items[line]
        push(&columns[LINE_FUNCTION], _met(&group.functions, old, functions))
        push(&columns[LINE_NUMBER], source[LINE_NUMBER].items[line])
        if functions[0] > columns[FUNCTION_ID].count:
            _add_row(columns, source, old - 1, FUNCTION_ID, FUNCTION_NAME, START_LINE)
    return push(&columns[LINE_STARTS], columns[LINE_NUMBER].count)


cdef int _add_row(Column* columns, const Column* source, size_t at, int ids, int first, int last) except -1 nogil:
    cdef int name
    push(&columns[ids], columns[ids].count + 1)
    for name in range(first, last + 1):
        push(&columns[name], source[name].items[at])
    return 0
