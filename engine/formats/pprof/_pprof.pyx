"""The compiled pprof parser: one pass over the bytes into growable C columns; the GIL is held for errors and strings.

Equivalent to ``_pprof_py`` on every input, including the class and offset of errors. Every read is checked against the
end of its message; memory is bounded by ``entries_max`` per table and eight times as many location ids and values.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from engine.formats.pprof._columns cimport Column, push, reserve

import numpy as np

from engine.core.errors import BadProfile, LimitExceeded, Truncated
from engine.formats.pprof.pprof_model import Functions, Locations, Mappings, Profile, Samples

cdef enum:
    WIRE_VARINT = 0
    WIRE_FIXED64 = 1
    WIRE_BYTES = 2
    WIRE_FIXED32 = 5
    VARINT_BYTES_MAX = 10
    ITEMS_PER_ENTRY = 8  # location ids and values allowed per allowed sample

cdef uint64_t FIELD_NUMBER_MAX = (1 << 29) - 1

cdef enum Fault:
    ENDS_IN_NUMBER
    ENDS_IN_FIELD
    NUMBER_TOO_LONG
    FIELD_NUMBER
    WIRE_TYPE
    TOO_MANY

cdef struct Field:
    uint64_t number
    int wire
    uint64_t value  # of a varint
    size_t start    # of the bytes
    size_t end
    size_t key      # offset of the key

cdef int fail(Fault fault, size_t offset, uint64_t detail) except -1 with gil:
    if fault == ENDS_IN_NUMBER:
        raise Truncated("pprof", offset, "the message ends inside a varint")
    if fault == ENDS_IN_FIELD:
        raise Truncated("pprof", offset, f"a field has a length of {detail} bytes, fewer are left")
    if fault == NUMBER_TOO_LONG:
        raise BadProfile("pprof", offset, "a varint exceeds 64 bits; is this a pprof profile?")
    if fault == FIELD_NUMBER:
        raise BadProfile("pprof", offset, f"field number {detail} is invalid; is this a pprof profile?")
    if fault == TOO_MANY:
        raise LimitExceeded("pprof", offset, f"a table has more than {detail} entries; send shorter profiles")
    raise BadProfile("pprof", offset, f"wire type {detail} is invalid here; is this a pprof profile?")


cdef inline int push_ref(Column* column, uint64_t value, size_t entries_max, size_t key) except -1 nogil:
    push(column, value)
    if column.count > entries_max:
        return fail(TOO_MANY, key, entries_max)
    return 0


cdef int long_varint(const uint8_t* data, size_t* at, size_t end, uint64_t* value) except -1 nogil:
    cdef size_t start = at[0]
    cdef uint64_t total = 0
    cdef uint64_t byte
    cdef int count
    for count in range(VARINT_BYTES_MAX):
        if start + count >= end:
            return fail(ENDS_IN_NUMBER, start, 0)
        byte = data[start + count]
        if count == VARINT_BYTES_MAX - 1 and byte > 1:
            break
        total |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            value[0] = total
            at[0] = start + count + 1
            return 0
    return fail(NUMBER_TOO_LONG, start, 0)


cdef inline int varint(const uint8_t* data, size_t* at, size_t end, uint64_t* value) except -1 nogil:
    cdef size_t start = at[0]
    if start + 1 < end:
        if data[start] < 0x80:
            value[0] = data[start]
            at[0] = start + 1
            return 0
        if data[start + 1] < 0x80:
            value[0] = (data[start] & 0x7F) | (<uint64_t>data[start + 1] << 7)
            at[0] = start + 2
            return 0
    return long_varint(data, at, end, value)


cdef inline int next_field(const uint8_t* data, size_t* at, size_t end, Field* field) except -1 nogil:
    """Read the field at ``at`` and advance; its bytes are before ``end``."""
    cdef uint64_t key, length
    cdef size_t length_at
    field.key = at[0]
    varint(data, at, end, &key)
    field.number = key >> 3
    field.wire = key & 7
    if field.number == 0 or field.number > FIELD_NUMBER_MAX:
        return fail(FIELD_NUMBER, field.key, field.number)
    if field.wire == WIRE_VARINT:
        varint(data, at, end, &field.value)
        return 0
    length_at = at[0]
    if field.wire == WIRE_BYTES:
        varint(data, at, end, &length)
    elif field.wire == WIRE_FIXED64 or field.wire == WIRE_FIXED32:
        length = 8 if field.wire == WIRE_FIXED64 else 4
    else:
        return fail(WIRE_TYPE, field.key, field.wire)
    if length > end - at[0]:
        return fail(ENDS_IN_FIELD, length_at, length)
    field.start = at[0]
    field.end = at[0] + length
    at[0] = field.end
    return 0


cdef inline int expect(Field* field, int wire) except -1 nogil:
    if field.wire != wire:
        return fail(WIRE_TYPE, field.key, field.wire)
    return 0


cdef int integers(const uint8_t* data, size_t at, size_t end, uint64_t* values, uint64_t highest) except -1 nogil:
    """Read a message whose fields 1 to ``highest`` are singular integers into ``values``."""
    cdef Field field
    while at < end:
        next_field(data, &at, end, &field)
        if field.number <= highest:
            expect(&field, WIRE_VARINT)
            values[field.number] = field.value
    return 0


cdef inline int repeated(const uint8_t* data, Field* field, Column* column, size_t items_max) except -1 nogil:
    """Append a repeated integer field, packed or not; the column may have ``items_max`` items."""
    cdef size_t at
    cdef uint64_t value
    if field.wire == WIRE_VARINT:
        return push_ref(column, field.value, items_max, field.key)
    expect(field, WIRE_BYTES)
    at = field.start
    reserve(column, min(field.end - at, items_max + 1 - column.count))
    while at < field.end:
        varint(data, &at, field.end, &value)
        column.items[column.count] = value
        column.count += 1
        if column.count > items_max:
            return fail(TOO_MANY, field.key, items_max)
    return 0


cdef int sample(const uint8_t* data, Field* message, Column* columns, size_t entries_max) except -1 nogil:
    cdef size_t at = message.start
    cdef Field field
    cdef uint64_t label[5]
    cdef int i
    while at < message.end:
        next_field(data, &at, message.end, &field)
        if field.number == 1:
            repeated(data, &field, &columns[LOCATION_IDS], ITEMS_PER_ENTRY * entries_max)
        elif field.number == 2:
            repeated(data, &field, &columns[VALUES], ITEMS_PER_ENTRY * entries_max)
        elif field.number == 3:
            expect(&field, WIRE_BYTES)
            for i in range(5):
                label[i] = 0
            integers(data, field.start, field.end, label, 4)
            push(&columns[LABEL_STRINGS], label[2])
            push(&columns[LABEL_NUMBERS], label[3])
            push(&columns[LABEL_UNITS], label[4])
            push_ref(&columns[LABEL_KEYS], label[1], entries_max, field.key)
    push(&columns[VALUE_STARTS], columns[VALUES].count)
    push(&columns[LABEL_STARTS], columns[LABEL_KEYS].count)
    # The columns of starts have one entry more than there are samples.
    return push_ref(&columns[LOCATION_STARTS], columns[LOCATION_IDS].count, entries_max + 1, message.key)


cdef int mapping(const uint8_t* data, Field* message, Column* columns, size_t entries_max) except -1 nogil:
    cdef uint64_t values[11]
    cdef int i
    for i in range(11):
        values[i] = 0
    integers(data, message.start, message.end, values, 10)
    for i in range(1, 6):
        push(&columns[MAPPING_ID + i], values[i + 1])
    push(
        &columns[MAPPING_FLAGS],
        8 * (values[7] != 0) + 4 * (values[8] != 0) + 2 * (values[9] != 0) + (values[10] != 0),
    )
    return push_ref(&columns[MAPPING_ID], values[1], entries_max, message.key)


cdef int location(const uint8_t* data, Field* message, Column* columns, size_t entries_max) except -1 nogil:
    cdef size_t at = message.start
    cdef Field field
    cdef uint64_t values[6]
    cdef uint64_t line[3]
    cdef int i
    for i in range(6):
        values[i] = 0
    while at < message.end:
        next_field(data, &at, message.end, &field)
        if field.number == 4:
            expect(&field, WIRE_BYTES)
            line[1] = 0
            line[2] = 0
            integers(data, field.start, field.end, line, 2)
            push(&columns[LINE_FUNCTION], line[1])
            push_ref(&columns[LINE_NUMBER], line[2], entries_max, field.key)
        elif field.number <= 5:
            expect(&field, WIRE_VARINT)
            values[field.number] = field.value
    push(&columns[LOCATION_MAPPING], values[2])
    push(&columns[ADDRESS], values[3])
    push(&columns[FOLDED], values[5] != 0)
    push(&columns[LINE_STARTS], columns[LINE_NUMBER].count)
    return push_ref(&columns[LOCATION_ID], values[1], entries_max, message.key)


cdef int function(const uint8_t* data, Field* message, Column* columns, size_t entries_max) except -1 nogil:
    cdef uint64_t values[6]
    cdef int i
    for i in range(6):
        values[i] = 0
    integers(data, message.start, message.end, values, 5)
    for i in range(1, 5):
        push(&columns[FUNCTION_ID + i], values[i + 1])
    return push_ref(&columns[FUNCTION_ID], values[1], entries_max, message.key)


cdef int value_type(const uint8_t* data, Field* message, Column* columns, size_t entries_max) except -1 nogil:
    cdef uint64_t values[3]
    values[1] = 0
    values[2] = 0
    integers(data, message.start, message.end, values, 2)
    push(&columns[UNITS], values[2])
    return push_ref(&columns[TYPES], values[1], entries_max, message.key)


cdef int top_field(
    const uint8_t* data, Field* field, Column* columns, Header* header, size_t entries_max
) except -1 nogil:
    cdef uint64_t number = field.number
    if number == 13:
        return repeated(data, field, &columns[COMMENTS], entries_max)
    if number > 14:
        return 0
    if number > 6 and number != 11:
        expect(field, WIRE_VARINT)
        header.integers[number] = field.value
        return 0
    expect(field, WIRE_BYTES)
    if number == 2:
        return sample(data, field, columns, entries_max)
    if number == 4:
        return location(data, field, columns, entries_max)
    if number == 5:
        return function(data, field, columns, entries_max)
    if number == 6:
        push(&columns[STRING_STARTS], field.start)
        return push_ref(&columns[STRING_ENDS], field.end, entries_max, field.key)
    if number == 3:
        return mapping(data, field, columns, entries_max)
    if number == 1:
        return value_type(data, field, columns, entries_max)
    return integers(data, field.start, field.end, header.period_type, 2)


cdef int message(
    const uint8_t* data, size_t size, Column* columns, Header* header, size_t entries_max
) except -1 nogil:
    cdef size_t at = 0
    cdef Field field
    push(&columns[LOCATION_STARTS], 0)
    push(&columns[VALUE_STARTS], 0)
    push(&columns[LABEL_STARTS], 0)
    push(&columns[LINE_STARTS], 0)
    while at < size:
        next_field(data, &at, size, &field)
        top_field(data, &field, columns, header, entries_max)
    return 0


cdef class Tables:
    """Owns the columns of a parsed message."""

    def __cinit__(self):
        cdef int i
        for i in range(COLUMN_COUNT):
            self.columns[i] = Column(NULL, 0, 0)
        for i in range(15):
            self.header.integers[i] = 0
        for i in range(3):
            self.header.period_type[i] = 0

    def __dealloc__(self):
        cdef int i
        for i in range(COLUMN_COUNT):
            free(self.columns[i].items)

    cdef object unsigned_column(self, int name):
        cdef Column* column = &self.columns[name]
        array = np.empty(column.count, np.uint64)
        cdef uint64_t[::1] view = array
        if column.count:
            memcpy(&view[0], column.items, column.count * sizeof(uint64_t))
        return array

    cdef object signed_column(self, int name):
        return self.unsigned_column(name).view(np.int64)

    cdef object byte_column(self, int name):
        return self.unsigned_column(name).astype(np.uint8)

    cdef list strings(self, bytes data):
        cdef const char* start = PyBytes_AS_STRING(data)
        cdef Column* starts = &self.columns[STRING_STARTS]
        cdef Column* ends = &self.columns[STRING_ENDS]
        cdef size_t i
        return [
            PyBytes_FromStringAndSize(start + starts.items[i], ends.items[i] - starts.items[i])
            for i in range(starts.count)
        ]


def parse_message(bytes data not None, size_t entries_max):
    """Return the profile of an uncompressed pprof message with at most ``entries_max`` entries per table.

    Raises BadProfile, Truncated or LimitExceeded.
    """
    cdef Tables tables = Tables()
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef size_t size = PyBytes_GET_SIZE(data)
    with nogil:
        message(start, size, tables.columns, &tables.header, entries_max)
    return _profile(tables, data)


cdef object _profile(Tables tables, bytes data):
    cdef Header* header = &tables.header
    types = tables.signed_column(TYPES).tolist()
    return Profile(
        strings=tables.strings(data),
        sample_types=list(zip(types, tables.signed_column(UNITS).tolist())),
        period_type=(<int64_t>header.period_type[1], <int64_t>header.period_type[2]),
        drop_frames=<int64_t>header.integers[7],
        keep_frames=<int64_t>header.integers[8],
        time_ns=<int64_t>header.integers[9],
        duration_ns=<int64_t>header.integers[10],
        period=<int64_t>header.integers[12],
        comments=tables.signed_column(COMMENTS).tolist(),
        default_sample_type=<int64_t>header.integers[14],
        samples=_samples(tables),
        mappings=_mappings(tables),
        locations=_locations(tables),
        functions=_functions(tables),
    )


cdef object _samples(Tables tables):
    return Samples(
        location_starts=tables.signed_column(LOCATION_STARTS),
        location_ids=tables.unsigned_column(LOCATION_IDS),
        value_starts=tables.signed_column(VALUE_STARTS),
        values=tables.signed_column(VALUES),
        label_starts=tables.signed_column(LABEL_STARTS),
        label_keys=tables.signed_column(LABEL_KEYS),
        label_strings=tables.signed_column(LABEL_STRINGS),
        label_numbers=tables.signed_column(LABEL_NUMBERS),
        label_units=tables.signed_column(LABEL_UNITS),
    )


cdef object _mappings(Tables tables):
    return Mappings(
        ids=tables.unsigned_column(MAPPING_ID),
        memory_starts=tables.unsigned_column(MEMORY_START),
        memory_limits=tables.unsigned_column(MEMORY_LIMIT),
        file_offsets=tables.unsigned_column(FILE_OFFSET),
        filenames=tables.signed_column(MAPPING_FILENAME),
        build_ids=tables.signed_column(BUILD_ID),
        flags=tables.byte_column(MAPPING_FLAGS),
    )


cdef object _locations(Tables tables):
    return Locations(
        ids=tables.unsigned_column(LOCATION_ID),
        mapping_ids=tables.unsigned_column(LOCATION_MAPPING),
        addresses=tables.unsigned_column(ADDRESS),
        folded=tables.byte_column(FOLDED),
        line_starts=tables.signed_column(LINE_STARTS),
        line_function_ids=tables.unsigned_column(LINE_FUNCTION),
        line_numbers=tables.signed_column(LINE_NUMBER),
    )


cdef object _functions(Tables tables):
    return Functions(
        ids=tables.unsigned_column(FUNCTION_ID),
        names=tables.signed_column(FUNCTION_NAME),
        system_names=tables.signed_column(SYSTEM_NAME),
        filenames=tables.signed_column(FUNCTION_FILENAME),
        start_lines=tables.signed_column(START_LINE),
    )
