"""The compiled merge of symbol tables; see ``engine.formats.prometheus.index.symbol_merge``."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from engine.core._byte_buffers cimport Buffer, Cursor, buffer_free, cursor_over, put_bytes, put_uvarint, read_uvarint, take

from engine.core.errors import Truncated
from engine.formats.prometheus.index.index_layout import SECTION

ctypedef struct Table:
    const uint8_t* data
    size_t start
    size_t end
    const uint32_t* positions
    int64_t count
    const uint8_t* used  # NULL: all
    uint32_t* translation
    int64_t head
    const uint8_t* text  # of the head, NULL at the end
    size_t size


cdef int _load(Table* table) noexcept nogil:
    """Load the text of the next used symbol; return 1 if it is truncated."""
    cdef Cursor cursor
    while table.used != NULL and table.head < table.count and not table.used[table.head]:
        table.head += 1
    table.text = NULL
    if table.head >= table.count:
        return 0
    cursor = cursor_over(table.data, table.end)
    cursor.at = min(table.start + table.positions[table.head], table.end)
    table.size = <size_t>read_uvarint(&cursor)
    table.text = take(&cursor, table.size)
    return 1 if cursor.failed else 0


cdef inline int _order(const Table* one, const Table* other) noexcept nogil:
    cdef size_t shared = min(one.size, other.size)
    cdef int order = memcmp(one.text, other.text, shared) if shared else 0
    if order:
        return order
    return -1 if one.size < other.size else (1 if one.size > other.size else 0)


cdef int _merge(Table* tables, size_t count, uint32_t number, size_t most, Buffer* out, size_t* merged) except -1 nogil:
    cdef size_t place, first
    cdef const uint8_t* text
    cdef Table least
    for place in range(count):
        if _load(&tables[place]):
            return 1
    while out.size < most:
        first = count
        for place in range(count):
            if tables[place].text != NULL and (first == count or _order(&tables[place], &tables[first]) < 0):
                first = place
        if first == count:
            break
        least = tables[first]
        put_uvarint(out, least.size)
        put_bytes(out, least.text, least.size)
        for place in range(first, count):
            if tables[place].text != NULL and _order(&tables[place], &least) == 0:
                tables[place].translation[tables[place].head] = number + <uint32_t>merged[0]
                tables[place].head += 1
                if _load(&tables[place]):
                    return 1
        merged[0] += 1
    return 0


def merge_symbols(tables, used, int64_t[::1] heads, translations, uint32_t first_number, size_t most_bytes):
    """Return the next symbols in the encoding of a symbol table, about ``most_bytes``, and their number; 0 at the end.

    ``heads`` are the numbers of consumed symbols of each table and are advanced; ``translations`` get the new numbers,
    from ``first_number`` on. Symbols outside of ``used`` are skipped.
    """
    cdef size_t count = len(tables), place, merged = 0
    cdef const uint8_t[::1] data
    cdef const uint32_t[::1] positions
    cdef const uint8_t[::1] mask
    cdef uint32_t[::1] translation
    cdef Table* found = <Table*>calloc(count + 1, sizeof(Table))
    cdef Buffer out = Buffer(NULL, 0, 0)
    cdef int failed
    if found == NULL:
        raise MemoryError()
    try:
        for place in range(count):
            data, found[place].start, found[place].end, positions = tables[place].parts()
            translation = translations[place]
            if translation.shape[0] != positions.shape[0] or heads[place] < 0:
                raise ValueError("a translation and its table differ in length")
            found[place].data = &data[0] if data.shape[0] else NULL
            found[place].count = positions.shape[0]
            found[place].head = heads[place]
            if positions.shape[0]:
                found[place].positions = &positions[0]
                found[place].translation = &translation[0]
            if used is not None and positions.shape[0]:
                mask = used[place].view("u1")
                if mask.shape[0] != positions.shape[0]:
                    raise ValueError("the used symbols and their table differ in length")
                found[place].used = &mask[0]
        with nogil:
            failed = _merge(found, count, first_number, most_bytes, &out, &merged)
        if failed:
            raise Truncated(SECTION, -1, "the symbol table ends inside a symbol")
        for place in range(count):
            heads[place] = found[place].head
        return (<const char*>out.data)[:out.size] if out.size else b"", merged
    finally:
        free(found)
        buffer_free(&out)
