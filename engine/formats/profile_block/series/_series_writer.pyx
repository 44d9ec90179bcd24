"""Encoder of a series index from C arrays ("Series index" in ``docs/reference/formats/profile-block.md``).

Symbols are numbered by rank, so that label pairs are sorted as integers: the rank of the name in the upper half, that
of the value in the lower half. The sorted pairs give the label indices and postings lists in order.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcmp

from engine.core._byte_buffers cimport (
    Buffer, buffer_free, put_bytes, put_svarint, put_u32, put_u32_be, put_u64_be, put_u8, put_uvarint, put_zeros,
    store_u32_be,
)
from engine.core._checksum_kernels cimport crc32c_of
from engine.formats.profile_block.symbols._interning cimport Slots, intern_string, slots_free
from engine.formats.profile_block.series._series_arrays cimport LabelItem, SeriesItem
from engine.formats.profile_block.symbols._symbol_arrays cimport StringItem

cdef enum:
    VERSION = 2
    SERIES_ALIGNMENT = 16
    LIST_ALIGNMENT = 4
    FINGERPRINT_INTERVAL = 1024

cdef uint64_t SEED = int.from_bytes(__import__("os").urandom(8), "little")


ctypedef struct Pair:
    uint64_t key
    uint32_t series


ctypedef struct Ranked:
    StringItem text
    uint32_t number


ctypedef struct Writing:
    const SeriesItem* series
    size_t count
    const LabelItem* labels
    size_t label_count
    Slots slots
    Buffer symbols      # StringItem, in order of first occurrence, then sorted
    Buffer numbers      # uint32_t per label: name and value, in order of first occurrence
    Buffer ranked       # Ranked per symbol
    Buffer ranks        # uint32_t per symbol in order of first occurrence
    Buffer refs         # uint32_t per series
    Buffer pairs        # Pair per label
    Buffer table        # body of a table in construction


cdef int write_series_index(Buffer* out, const SeriesItem* series, size_t count, const LabelItem* labels) except -1 nogil:
    """Write an index of these series, in this order, to the empty buffer ``out``."""
    cdef Writing writing
    cdef Buffer nothing = Buffer(NULL, 0, 0)
    cdef size_t index
    writing.series, writing.count, writing.labels = series, count, labels
    writing.label_count = 0
    for index in range(count):
        writing.label_count += series[index].label_count
    writing.slots = Slots(NULL, 0, 0)
    writing.symbols = writing.numbers = writing.ranked = writing.ranks = nothing
    writing.refs = writing.pairs = writing.table = nothing
    try:
        _write(out, &writing)
    finally:
        slots_free(&writing.slots)
        buffer_free(&writing.symbols)
        buffer_free(&writing.numbers)
        buffer_free(&writing.ranked)
        buffer_free(&writing.ranks)
        buffer_free(&writing.refs)
        buffer_free(&writing.pairs)
        buffer_free(&writing.table)
    return 0


cdef int _write(Buffer* out, Writing* writing) except -1 nogil:
    cdef size_t series_at, label_indices_at, postings_at, label_table_at, postings_table_at, offsets_at
    cdef size_t label_table_size
    _rank_symbols(writing)
    put_u32_be(out, <uint32_t>0xBAAAD700u)
    put_u8(out, VERSION)
    _put_symbols(out, writing)
    series_at = out.size
    _put_series(out, writing)
    label_indices_at = out.size
    _sort_pairs(writing)
    _put_label_indices(out, writing)
    label_table_size = writing.table.size
    postings_at = out.size
    _put_postings(out, writing)
    label_table_at = out.size
    _put_sized(out, writing.table.data, label_table_size)
    postings_table_at = out.size
    _put_sized(out, writing.table.data + label_table_size, writing.table.size - label_table_size)
    offsets_at = out.size
    _put_fingerprint_offsets(out, writing)
    put_u64_be(out, 5)
    put_u64_be(out, series_at)
    put_u64_be(out, label_indices_at)
    put_u64_be(out, label_table_at)
    put_u64_be(out, postings_at)
    put_u64_be(out, postings_table_at)
    put_u64_be(out, offsets_at)
    _put_time_range(out, writing)
    return put_u32_be(out, crc32c_of(out.data + out.size - 72, 72))


cdef int _compare_ranked(const void* left, const void* right) noexcept nogil:
    cdef const StringItem* one = &(<const Ranked*>left).text
    cdef const StringItem* other = &(<const Ranked*>right).text
    cdef uint32_t size = min(one.size, other.size)
    cdef int order = memcmp(one.data, other.data, size) if size else 0
    if order:
        return order
    return <int>(one.size > other.size) - <int>(one.size < other.size)


cdef int _compare_pairs(const void* left, const void* right) noexcept nogil:
    cdef const Pair* one = <const Pair*>left
    cdef const Pair* other = <const Pair*>right
    if one.key != other.key:
        return 1 if one.key > other.key else -1
    return <int>(one.series > other.series) - <int>(one.series < other.series)


cdef int _rank_symbols(Writing* writing) except -1 nogil:
    """Collect the distinct names and values and assign ranks in byte order."""
    cdef size_t index, count
    cdef Ranked item
    for index in range(writing.label_count):
        put_u32(&writing.numbers, intern_string(&writing.slots, &writing.symbols, SEED, writing.labels[index].name))
        put_u32(&writing.numbers, intern_string(&writing.slots, &writing.symbols, SEED, writing.labels[index].value))
    count = writing.symbols.size // sizeof(StringItem)
    for index in range(count):
        item.text = (<StringItem*>writing.symbols.data)[index]
        item.number = <uint32_t>index
        put_bytes(&writing.ranked, &item, sizeof(Ranked))
    if count:
        qsort(writing.ranked.data, count, sizeof(Ranked), _compare_ranked)
    put_zeros(&writing.ranks, count * sizeof(uint32_t))
    for index in range(count):
        (<uint32_t*>writing.ranks.data)[(<Ranked*>writing.ranked.data)[index].number] = <uint32_t>index
    return 0


cdef inline uint32_t _rank(const Writing* writing, size_t number) noexcept nogil:
    """Return the rank of a name (even number) or value (odd number)."""
    return (<uint32_t*>writing.ranks.data)[(<uint32_t*>writing.numbers.data)[number]]


cdef inline StringItem _ranked_text(const Writing* writing, uint64_t rank) noexcept nogil:
    return (<Ranked*>writing.ranked.data)[rank].text


cdef int _put_text(Buffer* out, StringItem text) except -1 nogil:
    put_uvarint(out, text.size)
    return put_bytes(out, text.data, text.size)


cdef int _put_sized(Buffer* out, const uint8_t* data, size_t size) except -1 nogil:
    put_u32_be(out, <uint32_t>size)
    put_bytes(out, data, size)
    return put_u32_be(out, crc32c_of(data, size))


cdef int _seal(Buffer* out, size_t start) except -1 nogil:
    """Store the length of the bytes after ``start`` + 4 at ``start``, and append their checksum."""
    store_u32_be(out.data + start, <uint32_t>(out.size - start - 4))
    return put_u32_be(out, crc32c_of(out.data + start + 4, out.size - start - 4))


cdef int _put_symbols(Buffer* out, Writing* writing) except -1 nogil:
    cdef size_t start = out.size, index, count = writing.ranked.size // sizeof(Ranked)
    put_u32_be(out, 0)
    put_u32_be(out, <uint32_t>count)
    for index in range(count):
        _put_text(out, _ranked_text(writing, index))
    return _seal(out, start)


cdef size_t _varint_bytes(uint64_t value) noexcept nogil:
    cdef size_t size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef int _put_series(Buffer* out, Writing* writing) except -1 nogil:
    cdef const SeriesItem* item
    cdef size_t index, label, next_label = 0, size, start
    cdef Buffer body = Buffer(NULL, 0, 0)
    try:
        for index in range(writing.count):
            item = &writing.series[index]
            put_zeros(out, (0 - out.size) & (SERIES_ALIGNMENT - 1))
            put_u32(&writing.refs, <uint32_t>(out.size // SERIES_ALIGNMENT))
            body.size = 0
            put_u64_be(&body, item.fingerprint)
            put_uvarint(&body, item.label_count)
            for label in range(next_label, next_label + item.label_count):
                put_uvarint(&body, _rank(writing, 2 * label))
                put_uvarint(&body, _rank(writing, 2 * label + 1))
            next_label += item.label_count
            put_uvarint(&body, 1)
            put_svarint(&body, item.min_time_ns)
            put_uvarint(&body, <uint64_t>item.max_time_ns - <uint64_t>item.min_time_ns)
            put_uvarint(&body, 0)
            put_uvarint(&body, item.position)
            put_u32_be(&body, 0)
            put_uvarint(out, body.size)
            put_bytes(out, body.data, body.size)
            put_u32_be(out, crc32c_of(body.data, body.size))
    finally:
        buffer_free(&body)
    return 0


cdef int _sort_pairs(Writing* writing) except -1 nogil:
    cdef size_t index, label, next_label = 0
    cdef Pair pair
    for index in range(writing.count):
        for label in range(next_label, next_label + writing.series[index].label_count):
            pair.key = (<uint64_t>_rank(writing, 2 * label) << 32) | _rank(writing, 2 * label + 1)
            pair.series = <uint32_t>index
            put_bytes(&writing.pairs, &pair, sizeof(Pair))
        next_label += writing.series[index].label_count
    if next_label:
        qsort(writing.pairs.data, next_label, sizeof(Pair), _compare_pairs)
    return 0


cdef int _put_label_indices(Buffer* out, Writing* writing) except -1 nogil:
    """Append a label index per label name; build the body of their table."""
    cdef const Pair* pairs = <const Pair*>writing.pairs.data
    cdef size_t first = 0, end, index, start, count, names = 0
    put_u32_be(&writing.table, 0)
    while first < writing.label_count:
        put_zeros(out, (0 - out.size) & (LIST_ALIGNMENT - 1))
        start = out.size
        put_u32_be(out, 0)
        put_u32_be(out, 1)
        put_u32_be(out, 0)
        end = first
        count = 0
        while end < writing.label_count and pairs[end].key >> 32 == pairs[first].key >> 32:
            if end == first or pairs[end].key != pairs[end - 1].key:
                put_u32_be(out, <uint32_t>pairs[end].key)
                count += 1
            end += 1
        store_u32_be(out.data + start + 8, <uint32_t>count)
        _seal(out, start)
        put_uvarint(&writing.table, 1)
        _put_text(&writing.table, _ranked_text(writing, pairs[first].key >> 32))
        put_uvarint(&writing.table, start)
        names += 1
        first = end
    store_u32_be(writing.table.data, <uint32_t>names)
    return 0


cdef int _put_postings(Buffer* out, Writing* writing) except -1 nogil:
    """Append the list of all series and one list per label; append the body of their table to the first table."""
    cdef const Pair* pairs = <const Pair*>writing.pairs.data
    cdef const uint32_t* refs = <const uint32_t*>writing.refs.data
    cdef StringItem name, value
    cdef size_t table_start = writing.table.size, first = 0, end, index, start, count, lists = 1
    put_u32_be(&writing.table, 0)
    put_zeros(out, (0 - out.size) & (LIST_ALIGNMENT - 1))
    start = out.size
    put_u32_be(out, 0)
    put_u32_be(out, <uint32_t>writing.count)
    for index in range(writing.count):
        put_u32_be(out, refs[index])
    _seal(out, start)
    put_uvarint(&writing.table, 2)
    put_u8(&writing.table, 0)
    put_u8(&writing.table, 0)
    put_uvarint(&writing.table, start)
    while first < writing.label_count:
        end = first + 1
        while end < writing.label_count and pairs[end].key == pairs[first].key:
            end += 1
        name = _ranked_text(writing, pairs[first].key >> 32)
        value = _ranked_text(writing, pairs[first].key & 0xFFFFFFFFu)
        if name.size or value.size:
            put_zeros(out, (0 - out.size) & (LIST_ALIGNMENT - 1))
            start = out.size
            put_u32_be(out, 0)
            put_u32_be(out, 0)
            count = 0
            for index in range(first, end):
                if index == first or pairs[index].series != pairs[index - 1].series:
                    put_u32_be(out, refs[pairs[index].series])
                    count += 1
            store_u32_be(out.data + start + 4, <uint32_t>count)
            _seal(out, start)
            put_uvarint(&writing.table, 2)
            _put_text(&writing.table, name)
            _put_text(&writing.table, value)
            put_uvarint(&writing.table, start)
            lists += 1
        first = end
    store_u32_be(writing.table.data + table_start, <uint32_t>lists)
    return 0


cdef int _put_fingerprint_offsets(Buffer* out, Writing* writing) except -1 nogil:
    cdef size_t start = out.size, index = 0
    put_u32_be(out, 0)
    put_u32_be(out, <uint32_t>((writing.count + FINGERPRINT_INTERVAL - 1) // FINGERPRINT_INTERVAL))
    while index < writing.count:
        put_u64_be(out, (<const uint32_t*>writing.refs.data)[index])
        put_u64_be(out, writing.series[index].fingerprint)
        index += FINGERPRINT_INTERVAL
    return _seal(out, start)


cdef int _put_time_range(Buffer* out, Writing* writing) except -1 nogil:
    """Append the time range of all chunks; 0 means unset."""
    cdef int64_t low = 0, high = 0
    cdef size_t index
    for index in range(writing.count):
        if low == 0 or writing.series[index].min_time_ns < low:
            low = writing.series[index].min_time_ns
        if high == 0 or writing.series[index].max_time_ns > high:
            high = writing.series[index].max_time_ns
    put_u64_be(out, <uint64_t>low)
    return put_u64_be(out, <uint64_t>high)
