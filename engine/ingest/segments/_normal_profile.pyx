"""The compiled twin of ``normalise``: the same steps on C columns, without tables in between.

Agrees with ``engine.ingest.segments.normalise`` on every profile, in what stays, in every number, and in what is refused. Ids
are looked up by position where they are small, as all known profilers write them, else in a seeded hash table. The
columns must be those of a parser: ragged tables that fit their items.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcmp, memcpy, memset

from engine.core._byte_buffers cimport Buffer, buffer_free, put_bytes
from engine.formats.pprof._columns cimport Column, column_free, fill_numbers, fill_zeros, push, reserve
from engine.formats.profile_block.symbols._interning cimport Slots, lithify_mix, slots_fill, slots_free, slots_make_room, tag_of
from engine.formats.pprof._pprof cimport (
    ADDRESS, BUILD_ID, COLUMN_COUNT, FILE_OFFSET, FOLDED, FUNCTION_FILENAME, FUNCTION_ID, FUNCTION_NAME, LABEL_KEYS,
    LABEL_NUMBERS, LABEL_STARTS, LABEL_STRINGS, LABEL_UNITS, LINE_FUNCTION, LINE_NUMBER, LINE_STARTS, LOCATION_ID,
    LOCATION_IDS, LOCATION_MAPPING, LOCATION_STARTS, MAPPING_FILENAME, MAPPING_FLAGS, MAPPING_ID, MEMORY_LIMIT,
    MEMORY_START, START_LINE, SYSTEM_NAME, TYPES, UNITS, VALUES, VALUE_STARTS,
)
from engine.formats.profile_block.symbols._symbol_arrays cimport StringItem

from engine.core.errors import BadProfile, LimitExceeded
from engine.ingest.segments.normalise import (
    FRAMES_MAX as _FRAMES_MAX,
    SAMPLE_TYPES_MAX as _SAMPLE_TYPES_MAX,
    STACK_FRAMES_MAX as _STACK_FRAMES_MAX,
    too_deep, too_many_frames, too_many_sample_types, values_too_large, wrong_time,
)

cdef extern from "csrc/xxhash64.h":
    uint64_t lithify_xxh64_words(const uint64_t* words, size_t count) noexcept nogil

cdef enum:
    STRING_BYTES_MAX = 65535
    LINES_MAX = 255
    HAS_FUNCTIONS = 8
    SLOTS_PER_ENTRY = 16        # a hash table larger than so many slots per entry is given back
    FEW_LABELS = 16             # so many are sorted by insertion
    DIRECT_IDS_PER_ENTRY = 4    # ids up to so many times the entries are looked up by position

cdef int64_t INT32_MAX = 0x7FFFFFFF
cdef uint64_t INT64_MAX = 0x7FFFFFFFFFFFFFFF
cdef size_t FRAMES_MAX = _FRAMES_MAX
cdef size_t SAMPLE_TYPES_MAX = _SAMPLE_TYPES_MAX
cdef size_t STACK_FRAMES_MAX = _STACK_FRAMES_MAX

cdef enum Flaw:
    WRONG_TIME
    TOO_MANY_TYPES
    TOO_DEEP
    TOO_MANY_FRAMES
    VALUES_TOO_LARGE

cdef tuple REFUSALS = (wrong_time, too_many_sample_types, too_deep, too_many_frames, values_too_large)


cdef int refuse(Flaw flaw) except -1 with gil:
    raise REFUSALS[<int>flaw]()


cdef void normal_profile_free(NormalProfile* profile) noexcept nogil:
    cdef int name
    for name in range(COLUMN_COUNT):
        column_free(&profile.columns[name])
    buffer_free(&profile.strings)


cdef void workspace_free(Workspace* work) noexcept nogil:
    column_free(&work.ids.direct)
    slots_free(&work.ids.slots)
    slots_free(&work.slots)
    column_free(&work.function_ids)
    column_free(&work.line_functions)
    column_free(&work.mapping_ids)
    column_free(&work.kept_ids)
    column_free(&work.kept_locations)
    column_free(&work.new_locations)
    column_free(&work.new_functions)
    column_free(&work.keys)
    column_free(&work.values)
    column_free(&work.sums)
    buffer_free(&work.kept)
    buffer_free(&work.order)


cdef int normalise_columns(NormalProfile* out, Workspace* work, const Column* raw, const StringItem* strings,
                           size_t string_count) except -1 nogil:
    """Fill ``out``, whose header fields are set as parsed, from the parser's columns; BadProfile or LimitExceeded."""
    if out.time_ns < 0 or out.duration_ns < 0:
        refuse(WRONG_TIME)
    _check_sizes(raw)
    _take_strings(out, work, strings, string_count)
    _take_types(out, work, raw)
    _find_functions(work, raw)
    _find_mappings(work, raw)
    _judge_locations(work, raw)
    _keep_samples(out, work, raw)
    _order_samples(work)
    _mark_reached(work, raw)
    _write_mappings(out, work, raw)
    _write_locations(out, work, raw)
    _write_functions(out, work, raw)
    return _write_samples(out, work)


cdef void _empty(Slots* slots, size_t expected) noexcept nogil:
    """Empty a table for another profile; one much too large for it goes, as it would be cleared for nothing."""
    if slots.entries == NULL:
        return
    if slots.mask > SLOTS_PER_ENTRY * expected:
        slots_free(slots)
    else:
        memset(slots.entries, 0, (slots.mask + 1) * sizeof(uint64_t))
        slots.used = 0


cdef int _check_sizes(const Column* raw) except -1 nogil:
    cdef const uint64_t* starts = raw[LOCATION_STARTS].items
    cdef size_t index
    if raw[TYPES].count > SAMPLE_TYPES_MAX:
        refuse(TOO_MANY_TYPES)
    for index in range(raw[LOCATION_STARTS].count - 1):
        if starts[index + 1] - starts[index] > STACK_FRAMES_MAX:
            refuse(TOO_DEEP)
    if raw[LOCATION_IDS].count > FRAMES_MAX:
        refuse(TOO_MANY_FRAMES)
    return 0


cdef int _take_strings(NormalProfile* out, Workspace* work, const StringItem* strings, size_t count) except -1 nogil:
    """Copy the table, cut, with the empty string first: it changes places with what was there."""
    cdef StringItem* items
    cdef StringItem none
    cdef size_t index
    out.strings.size = 0
    put_bytes(&out.strings, strings, count * sizeof(StringItem))
    items = <StringItem*>out.strings.data
    work.empty = count
    for index in range(count):
        if items[index].size == 0:
            work.empty = index
            break
    if work.empty == count:
        none.data, none.size = <const uint8_t*>b"", 0
        put_bytes(&out.strings, &none, sizeof(StringItem))
        items = <StringItem*>out.strings.data
    for index in range(count):
        items[index].size = min(items[index].size, <uint32_t>STRING_BYTES_MAX)
    none = items[work.empty]
    items[work.empty] = items[0]
    items[0] = none
    return 0


cdef inline uint64_t _ref(const NormalProfile* out, const Workspace* work, uint64_t ref) noexcept nogil:
    """Return where a reference of the message points now; 0 if it pointed nowhere."""
    if ref == 0:
        return work.empty
    if ref == work.empty or ref >= out.strings.size // sizeof(StringItem):
        return 0
    return ref


cdef int _refs(NormalProfile* out, Workspace* work, const Column* raw, int name) except -1 nogil:
    cdef Column* column = &out.columns[name]
    cdef size_t index
    fill_zeros(column, raw[name].count)
    for index in range(raw[name].count):
        column.items[index] = _ref(out, work, raw[name].items[index])
    return 0


cdef int _take_types(NormalProfile* out, Workspace* work, const Column* raw) except -1 nogil:
    _refs(out, work, raw, TYPES)
    _refs(out, work, raw, UNITS)
    out.period_type = <int64_t>_ref(out, work, <uint64_t>out.period_type)
    out.period_unit = <int64_t>_ref(out, work, <uint64_t>out.period_unit)
    return 0


cdef int _fill_ids(IdTable* table, const uint64_t* ids, size_t count) except -1 nogil:
    """Index the ids, which must stay; the first of equal ones counts, 0 is none."""
    cdef uint64_t highest = 0
    cdef size_t index, position
    cdef uint32_t tag
    table.ids = ids
    for index in range(count):
        highest = max(highest, ids[index])
    table.is_direct = highest <= DIRECT_IDS_PER_ENTRY * count
    if table.is_direct:
        fill_zeros(&table.direct, highest + 1)
        for index in range(count, 0, -1):
            table.direct.items[ids[index - 1]] = index
        table.direct.items[0] = 0
        return 0
    _empty(&table.slots, count)
    for index in range(count):
        if ids[index] == 0:
            continue
        slots_make_room(&table.slots)
        tag = tag_of(lithify_mix(table.seed, ids[index]))
        position = tag & table.slots.mask
        while table.slots.entries[position]:
            if ids[<uint32_t>table.slots.entries[position] - 1] == ids[index]:
                break
            position = (position + 1) & table.slots.mask
        if table.slots.entries[position] == 0:
            slots_fill(&table.slots, position, tag, index)
    return 0


cdef inline uint64_t _find_id(const IdTable* table, uint64_t wanted) noexcept nogil:
    """Return the position of an id + 1, 0 if there is none."""
    cdef size_t position
    if table.is_direct:
        return table.direct.items[wanted] if wanted < table.direct.count else 0
    position = tag_of(lithify_mix(table.seed, wanted)) & table.slots.mask
    while table.slots.entries[position]:
        if table.ids[<uint32_t>table.slots.entries[position] - 1] == wanted:
            return <uint32_t>table.slots.entries[position]
        position = (position + 1) & table.slots.mask
    return 0


cdef int _find_functions(Workspace* work, const Column* raw) except -1 nogil:
    """Find the function of every line; functions without an id have their position for one."""
    cdef const Column* lines = &raw[LINE_FUNCTION]
    cdef size_t index
    fill_zeros(&work.function_ids, raw[FUNCTION_ID].count)
    for index in range(raw[FUNCTION_ID].count):
        work.function_ids.items[index] = raw[FUNCTION_ID].items[index] or index + 1
    _fill_ids(&work.ids, work.function_ids.items, work.function_ids.count)
    fill_zeros(&work.line_functions, lines.count)
    for index in range(lines.count):
        work.line_functions.items[index] = _find_id(&work.ids, lines.items[index])
    return 0


cdef int _find_mappings(Workspace* work, const Column* raw) except -1 nogil:
    """Give every location its mapping's number: one more than there are for the stub, 0 for an unknown one."""
    cdef const Column* mappings = &raw[LOCATION_MAPPING]
    cdef size_t index
    _fill_ids(&work.ids, raw[MAPPING_ID].items, raw[MAPPING_ID].count)
    fill_zeros(&work.mapping_ids, mappings.count)
    for index in range(mappings.count):
        if mappings.items[index] == 0:
            work.mapping_ids.items[index] = raw[MAPPING_ID].count + 1
        else:
            work.mapping_ids.items[index] = _find_id(&work.ids, mappings.items[index])
    return 0


cdef inline size_t _line_end(const Column* raw, size_t location) noexcept nogil:
    """Return where the lines that stay of a location end."""
    return min(raw[LINE_STARTS].items[location + 1], raw[LINE_STARTS].items[location] + LINES_MAX)


cdef int _judge_locations(Workspace* work, const Column* raw) except -1 nogil:
    cdef size_t index, line, first, end
    cdef bint is_kept
    fill_zeros(&work.kept_ids, raw[LOCATION_ID].count)
    work.kept_locations.count = 0
    for index in range(raw[LOCATION_ID].count):
        first, end = raw[LINE_STARTS].items[index], _line_end(raw, index)
        is_kept = work.mapping_ids.items[index] != 0 and (end > first or raw[ADDRESS].items[index] != 0)
        for line in range(first, end):
            is_kept = is_kept and work.line_functions.items[line] != 0
        if is_kept:
            push(&work.kept_locations, index)
            work.kept_ids.items[index] = work.kept_locations.count
    return _fill_ids(&work.ids, raw[LOCATION_ID].items, raw[LOCATION_ID].count)


cdef int _keep_samples(NormalProfile* out, Workspace* work, const Column* raw) except -1 nogil:
    """List the samples worth keeping, equal ones once with their values added."""
    cdef size_t types = raw[TYPES].count, index, at
    cdef const uint64_t* values
    work.keys.count = work.values.count = work.kept.size = 0
    _empty(&work.slots, raw[LOCATION_STARTS].count)
    fill_zeros(&work.sums, types)
    for index in range(raw[LOCATION_STARTS].count - 1):
        values = raw[VALUES].items + raw[VALUE_STARTS].items[index]
        if raw[VALUE_STARTS].items[index + 1] - raw[VALUE_STARTS].items[index] != types or not _counts(values, types):
            continue
        if not _push_stack(work, raw, index):
            continue
        for at in range(types):
            if values[at] > INT64_MAX - work.sums.items[at]:
                refuse(VALUES_TOO_LARGE)
            work.sums.items[at] += values[at]
        _push_labels(out, work, raw, index)
        _join(work, values, types)
    return 0


cdef inline bint _counts(const uint64_t* values, size_t types) noexcept nogil:
    """Tell whether no value is negative and one is more than 0."""
    cdef uint64_t every = 0
    cdef size_t index
    for index in range(types):
        every |= values[index]
    return 0 < every <= INT64_MAX


cdef inline int _push_stack(Workspace* work, const Column* raw, size_t sample) except -1 nogil:
    """Begin a key with the sample's locations; 0, and nothing pushed, if one is unknown."""
    cdef size_t start = raw[LOCATION_STARTS].items[sample], end = raw[LOCATION_STARTS].items[sample + 1], index
    cdef const uint64_t* ids = raw[LOCATION_IDS].items
    cdef KeptSample item
    cdef uint64_t* key
    cdef uint64_t found
    reserve(&work.keys, end - start)
    key = work.keys.items + work.keys.count
    for index in range(start, end):
        found = _find_id(&work.ids, ids[index])
        if found == 0 or work.kept_ids.items[found - 1] == 0:
            return 0
        key[index - start] = work.kept_ids.items[found - 1]
    item.start = work.keys.count
    work.keys.count += end - start
    item.labels, item.end, item.hash = work.keys.count, 0, 0
    put_bytes(&work.kept, &item, sizeof(KeptSample))
    return 1


cdef int _compare_numbers(const void* left, const void* right) noexcept nogil:
    cdef uint64_t one = (<const uint64_t*>left)[0], other = (<const uint64_t*>right)[0]
    return <int>(one > other) - <int>(one < other)


cdef inline uint64_t _swapped(uint64_t value) noexcept nogil:
    return (value << 32) | (value >> 32)


cdef int _push_labels(NormalProfile* out, Workspace* work, const Column* raw, size_t sample) except -1 nogil:
    """End the key with the sample's string labels, sorted: the key's ref in the low half, the value's in the high."""
    cdef uint64_t key, value
    cdef size_t index, at, first = work.keys.count, count
    cdef uint64_t* labels
    for index in range(raw[LABEL_STARTS].items[sample], raw[LABEL_STARTS].items[sample + 1]):
        key, value = _ref(out, work, raw[LABEL_KEYS].items[index]), _ref(out, work, raw[LABEL_STRINGS].items[index])
        if key and value:
            push(&work.keys, (key << 32) | value)
    labels, count = work.keys.items + first, work.keys.count - first
    if count > FEW_LABELS:
        qsort(labels, count, sizeof(uint64_t), _compare_numbers)
    else:
        for index in range(1, count):
            value, at = labels[index], index
            while at and labels[at - 1] > value:
                labels[at] = labels[at - 1]
                at -= 1
            labels[at] = value
    for index in range(count):
        labels[index] = _swapped(labels[index])
    return 0


cdef int _join(Workspace* work, const uint64_t* values, size_t types) except -1 nogil:
    """Finish the last sample listed: drop it again if an equal one is there and add its values to that."""
    cdef size_t number = work.kept.size // sizeof(KeptSample) - 1, position, index, other, words
    cdef KeptSample* items = <KeptSample*>work.kept.data
    cdef KeptSample* item = &items[number]
    cdef const uint64_t* keys = work.keys.items
    cdef uint32_t tag
    item.end = work.keys.count
    words = item.end - item.start
    item.hash = lithify_xxh64_words(keys + item.start, words)
    slots_make_room(&work.slots)
    tag = tag_of(lithify_mix(work.seed, item.hash))
    position = tag & work.slots.mask
    while work.slots.entries[position]:
        other = <uint32_t>work.slots.entries[position] - 1
        if (
            items[other].hash == item.hash and items[other].end - items[other].start == words
            and (words == 0 or memcmp(keys + items[other].start, keys + item.start, words * sizeof(uint64_t)) == 0)
        ):
            for index in range(types):
                work.values.items[other * types + index] += values[index]
            work.keys.count = item.start
            work.kept.size -= sizeof(KeptSample)
            return 0
        position = (position + 1) & work.slots.mask
    slots_fill(&work.slots, position, tag, number)
    for index in range(types):
        push(&work.values, values[index])
    return 0


cdef int _compare_ordered(const void* left, const void* right) noexcept nogil:
    cdef const Ordered* one = <const Ordered*>left
    cdef const Ordered* other = <const Ordered*>right
    if one.hash != other.hash:
        return 1 if one.hash > other.hash else -1
    return <int>(one.number > other.number) - <int>(one.number < other.number)


cdef int _order_samples(Workspace* work) except -1 nogil:
    """Order the kept samples by hash; equal hashes as they came."""
    cdef size_t count = work.kept.size // sizeof(KeptSample), index
    cdef Ordered entry
    work.order.size = 0
    for index in range(count):
        entry.hash, entry.number = (<KeptSample*>work.kept.data)[index].hash, index
        put_bytes(&work.order, &entry, sizeof(Ordered))
    if count:
        qsort(work.order.data, count, sizeof(Ordered), _compare_ordered)
    return 0


cdef int _mark_reached(Workspace* work, const Column* raw) except -1 nogil:
    """Number, in table order, the locations that samples reach and the functions that those reach."""
    cdef size_t count = work.kept.size // sizeof(KeptSample), index, at, line
    cdef const KeptSample* item
    cdef uint64_t number = 0
    fill_zeros(&work.new_locations, work.kept_locations.count + 1)
    fill_zeros(&work.new_functions, raw[FUNCTION_ID].count)
    for index in range(count):
        item = &(<KeptSample*>work.kept.data)[index]
        for at in range(item.start, item.labels):
            work.new_locations.items[work.keys.items[at]] = 1
    for index in range(1, work.new_locations.count):
        if work.new_locations.items[index]:
            number += 1
            work.new_locations.items[index] = number
            at = work.kept_locations.items[index - 1]
            for line in range(raw[LINE_STARTS].items[at], _line_end(raw, at)):
                work.new_functions.items[work.line_functions.items[line] - 1] = 1
    number = 0
    for index in range(work.new_functions.count):
        if work.new_functions.items[index]:
            number += 1
            work.new_functions.items[index] = number
    return 0


cdef int _write_mappings(NormalProfile* out, Workspace* work, const Column* raw) except -1 nogil:
    """Copy all mappings, without addresses where functions are known; the stub comes last if a location needs it."""
    cdef size_t count = raw[MAPPING_ID].count, index
    cdef int name
    cdef bint needs_stub = False
    for index in range(work.kept_locations.count):
        needs_stub = needs_stub or work.mapping_ids.items[work.kept_locations.items[index]] > count
    fill_numbers(&out.columns[MAPPING_ID], count + needs_stub)
    for name in range(MEMORY_START, MAPPING_FLAGS + 1):
        fill_zeros(&out.columns[name], count + needs_stub)
        for index in range(count):
            if name == MAPPING_FILENAME or name == BUILD_ID:
                out.columns[name].items[index] = _ref(out, work, raw[name].items[index])
            elif name == MAPPING_FLAGS or not raw[MAPPING_FLAGS].items[index] & HAS_FUNCTIONS:
                out.columns[name].items[index] = raw[name].items[index]
    return 0


cdef inline uint64_t _int32(uint64_t value) noexcept nogil:
    return value if -INT32_MAX <= <int64_t>value <= INT32_MAX else 0


cdef int _write_locations(NormalProfile* out, Workspace* work, const Column* raw) except -1 nogil:
    cdef Column* columns = out.columns
    cdef size_t index, at, line
    cdef uint64_t mapping
    cdef int name
    for name in range(LOCATION_ID, LINE_NUMBER + 1):
        columns[name].count = 0
    push(&columns[LINE_STARTS], 0)
    for index in range(1, work.new_locations.count):
        if work.new_locations.items[index] == 0:
            continue
        at = work.kept_locations.items[index - 1]
        mapping = work.mapping_ids.items[at]
        push(&columns[LOCATION_ID], work.new_locations.items[index])
        push(&columns[LOCATION_MAPPING], mapping)
        push(&columns[ADDRESS],
             0 if columns[MAPPING_FLAGS].items[mapping - 1] & HAS_FUNCTIONS else raw[ADDRESS].items[at])
        push(&columns[FOLDED], raw[FOLDED].items[at])
        for line in range(raw[LINE_STARTS].items[at], _line_end(raw, at)):
            push(&columns[LINE_FUNCTION], work.new_functions.items[work.line_functions.items[line] - 1])
            push(&columns[LINE_NUMBER], _int32(raw[LINE_NUMBER].items[line]))
        push(&columns[LINE_STARTS], columns[LINE_NUMBER].count)
    return 0


cdef int _write_functions(NormalProfile* out, Workspace* work, const Column* raw) except -1 nogil:
    cdef size_t index
    cdef int name
    for name in range(FUNCTION_ID, START_LINE + 1):
        out.columns[name].count = 0
    for index in range(work.new_functions.count):
        if work.new_functions.items[index]:
            push(&out.columns[FUNCTION_ID], work.new_functions.items[index])
            for name in range(FUNCTION_NAME, FUNCTION_FILENAME + 1):
                push(&out.columns[name], _ref(out, work, raw[name].items[index]))
            push(&out.columns[START_LINE], _int32(raw[START_LINE].items[index]))
    return 0


cdef int _write_samples(NormalProfile* out, Workspace* work) except -1 nogil:
    cdef size_t count = work.order.size // sizeof(Ordered), types = out.columns[TYPES].count, index, at
    cdef Column* columns = out.columns
    cdef const KeptSample* item
    cdef uint64_t number
    cdef int name
    for name in range(LOCATION_STARTS, LABEL_UNITS + 1):
        columns[name].count = 0
    push(&columns[LOCATION_STARTS], 0)
    push(&columns[VALUE_STARTS], 0)
    push(&columns[LABEL_STARTS], 0)
    reserve(&columns[LOCATION_IDS], work.keys.count)
    for index in range(count):
        number = (<Ordered*>work.order.data)[index].number
        item = &(<KeptSample*>work.kept.data)[number]
        for at in range(item.start, item.labels):
            columns[LOCATION_IDS].items[columns[LOCATION_IDS].count] = work.new_locations.items[work.keys.items[at]]
            columns[LOCATION_IDS].count += 1
        for at in range(types):
            push(&columns[VALUES], work.values.items[number * types + at])
        for at in range(item.labels, item.end):
            push(&columns[LABEL_KEYS], <uint32_t>work.keys.items[at])
            push(&columns[LABEL_STRINGS], work.keys.items[at] >> 32)
        push(&columns[LOCATION_STARTS], columns[LOCATION_IDS].count)
        push(&columns[VALUE_STARTS], columns[VALUES].count)
        push(&columns[LABEL_STARTS], columns[LABEL_KEYS].count)
    fill_zeros(&columns[LABEL_NUMBERS], columns[LABEL_KEYS].count)
    return fill_zeros(&columns[LABEL_UNITS], columns[LABEL_KEYS].count)
