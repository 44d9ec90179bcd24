"""The compiled codec and merge of blocks of entries; see ``engine.formats.ranges.entry_blocks``."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from engine.core._byte_buffers cimport (
    Buffer, Cursor, buffer_free, buffer_reserve, cursor_over, put_bytes, put_u8, put_uvarint, read_uvarint, take
)

from engine.formats.ranges.layout import MergeCounts
from engine.formats.ranges.errors import InvalidRecord, UnsortedKeys
from engine.core.errors import BadObject

cdef extern from "csrc/xxhash64.h":
    uint64_t lithify_xxh64_bytes(const uint8_t* data, size_t size) noexcept nogil

cdef enum:
    KEY_MAX = 1024
    IDENTITY_MAX = 64
    PAYLOAD_MAX = 1 << 20
    BLOCK_SIZE = 32 << 10

SECTION = "block"


ctypedef struct Text:
    const uint8_t* data
    size_t size


ctypedef struct RowCursor:
    # A row of a block; the key is a copy, the other members point into the block.
    Cursor cursor
    uint8_t key[KEY_MAX]
    size_t key_size
    Text identity
    Text payload


cdef inline int compared(const uint8_t* left, size_t left_size, const uint8_t* right, size_t right_size) noexcept nogil:
    cdef size_t size = left_size if left_size < right_size else right_size
    cdef int order = memcmp(left, right, size) if size else 0
    if order:
        return order
    return (left_size > right_size) - (left_size < right_size)


cdef inline Text text_of(bytes value) noexcept:
    cdef Text text
    text.data = <const uint8_t*>PyBytes_AS_STRING(value)
    text.size = PyBytes_GET_SIZE(value)
    return text


cdef inline bytes bytes_of(const uint8_t* data, size_t size):
    return PyBytes_FromStringAndSize(<const char*>data, size)


cdef int refuse(size_t offset, str reason) except -1:
    raise BadObject(SECTION, offset, reason)


cdef int step(RowCursor* row) except -1:
    """Read the next row of a block, which must have one."""
    cdef Cursor* cursor = &row.cursor
    cdef size_t begin = cursor.at
    cdef uint64_t shared = read_uvarint(cursor)
    cdef uint64_t size = read_uvarint(cursor)
    cdef uint64_t identity = read_uvarint(cursor)
    cdef uint64_t payload = read_uvarint(cursor) if identity and not cursor.failed else 0
    cdef const uint8_t* rest
    if cursor.failed:
        refuse(begin, "the block ends inside a varint, or a varint exceeds 64 bits")
    if shared > row.key_size or size > KEY_MAX or shared + size > KEY_MAX or shared + size == 0:
        refuse(begin, "the size of a key is invalid")
    if identity > IDENTITY_MAX or payload > PAYLOAD_MAX:
        refuse(begin, "the size of an identity or payload is invalid")
    rest = take(cursor, size + identity + payload)
    if rest == NULL:
        refuse(begin, "the block ends inside a row")
    # The bytes after the shared prefix decide whether keys ascend.
    if compared(rest, <size_t>size, row.key + shared, row.key_size - <size_t>shared) <= 0:
        refuse(begin, "keys do not ascend")
    memcpy(row.key + shared, rest, <size_t>size)
    row.key_size = <size_t>(shared + size)
    row.identity.data = rest + size
    row.identity.size = <size_t>identity
    row.payload.data = rest + size + identity
    row.payload.size = <size_t>payload
    return 0


cdef inline void open_block(RowCursor* row, bytes block) noexcept:
    row.cursor = cursor_over(<const uint8_t*>PyBytes_AS_STRING(block), PyBytes_GET_SIZE(block))
    row.key_size = 0


cdef inline bint has_more(const RowCursor* row) noexcept nogil:
    return row.cursor.at < row.cursor.size


def decode_block(bytes data not None):
    """Return the rows of a block. Raises BadObject with the section "block"."""
    cdef RowCursor row
    cdef list rows = []
    open_block(&row, data)
    while has_more(&row):
        step(&row)
        rows.append((
            bytes_of(row.key, row.key_size),
            bytes_of(row.identity.data, row.identity.size),
            bytes_of(row.payload.data, row.payload.size),
        ))
    return rows


cdef class Encoder:
    """Encodes rows as blocks and passes them to a sink, with the ends of files."""

    cdef object sink
    cdef bint is_cut
    cdef uint64_t bytes_min, bytes_max, every, border, file_bytes, block_bytes
    cdef size_t count
    cdef Buffer block
    cdef uint8_t last[KEY_MAX]
    cdef size_t last_size
    cdef bytes first

    def __cinit__(self, sink, rules):
        self.sink = sink
        self.is_cut = rules is not None
        if self.is_cut:
            self.bytes_min, self.bytes_max = rules.bytes_min, rules.bytes_max
            self.every, self.border = rules.every, rules.border
            if not self.every or not self.border:
                raise ValueError("the split rules must have positive numbers of keys")
        self.first = b""

    def __dealloc__(self):
        buffer_free(&self.block)

    cdef int add(self, const uint8_t* key, size_t key_size, Text identity, Text payload) except -1:
        cdef size_t shared = 0, limit
        cdef uint64_t size, hashed
        if self.count:
            limit = key_size if key_size < self.last_size else self.last_size
            while shared < limit and key[shared] == self.last[shared]:
                shared += 1
        else:
            self.first = bytes_of(key, key_size)
        put_uvarint(&self.block, shared)
        put_uvarint(&self.block, key_size - shared)
        put_uvarint(&self.block, identity.size)
        if identity.size:
            put_uvarint(&self.block, payload.size)
        put_bytes(&self.block, key + shared, key_size - shared)
        put_bytes(&self.block, identity.data, identity.size)
        put_bytes(&self.block, payload.data, payload.size)
        memcpy(self.last + shared, key + shared, key_size - shared)
        self.last_size = key_size
        self.count += 1
        self.block_bytes += key_size + identity.size + payload.size
        if self.block.size >= BLOCK_SIZE:
            self.flush()
        if self.is_cut:
            size = self.file_bytes + self.block_bytes
            hashed = lithify_xxh64_bytes(key, key_size)
            if size >= self.bytes_max or (size >= self.bytes_min and hashed % self.every == 0) or hashed % self.border == 0:
                self.finish()
        return 0

    cdef int flush(self) except -1:
        if self.count:
            self.sink.block(bytes_of(self.block.data, self.block.size), self.count, self.block_bytes, self.first,
                            bytes_of(self.last, self.last_size))
            self.file_bytes += self.block_bytes
            self.block.size = 0
            self.block_bytes = 0
            self.count = 0
        return 0

    cdef int finish(self) except -1:
        self.flush()
        if self.file_bytes:
            self.sink.cut()
            self.file_bytes = 0
        return 0


def encode_rows(rows, sink, rules):
    """Write rows as blocks of one or more files (``rules`` None: one file) to the sink; return the number of rows.

    Raises UnsortedKeys if keys do not strictly ascend, InvalidRecord for an invalid row.
    """
    cdef Encoder encoder = Encoder(sink, rules)
    cdef bytes key, identity, payload, previous = None
    cdef Text text, name, value
    cdef size_t count = 0
    for row in rows:
        key, identity, payload = row
        if key is None or identity is None or payload is None:
            raise TypeError("the members of a row must be bytes")
        text, name, value = text_of(key), text_of(identity), text_of(payload)
        if not 0 < text.size <= KEY_MAX or name.size > IDENTITY_MAX:
            raise InvalidRecord(f"invalid sizes: a key of {len(key)} bytes, an identity of {len(identity)} bytes")
        if value.size > <size_t>(PAYLOAD_MAX if name.size else 0):
            raise InvalidRecord(f"{key!r} has a payload of {len(payload)} bytes")
        if previous is not None and key <= previous:
            raise UnsortedKeys(f"{key!r} comes after {previous!r}")
        encoder.add(text.data, text.size, name, value)
        previous = key
        count += 1
    encoder.finish()
    return count


ctypedef struct Cover:
    # Ascending intervals, and the index of the first that does not end before the last key.
    size_t count
    size_t at
    Text* starts
    Text* ends  # data NULL: unbounded


cdef class Layers:
    """The merged rows of all layers and the base, by key, then from the newest to the oldest."""

    cdef list sources, blocks
    cdef object keep
    cdef size_t count, heaped
    cdef RowCursor* rows
    cdef size_t* heap
    cdef Cover* covers
    cdef Text after, upto
    cdef bint has_after, has_upto

    def __cinit__(self, sources, hidden, after, upto):
        cdef size_t i, j
        self.sources = list(sources)
        self.count = len(self.sources)
        self.blocks = [b""] * self.count
        self.keep = ([[tuple(pair) for pair in intervals] for intervals in hidden], after, upto)
        if len(self.keep[0]) != self.count:
            raise ValueError("expected hidden intervals for each layer and for the base")
        self.has_after, self.has_upto = after is not None, upto is not None
        if self.has_after:
            self.after = text_of(after)
        if self.has_upto:
            self.upto = text_of(upto)
        self.rows = <RowCursor*>calloc(self.count, sizeof(RowCursor))
        self.heap = <size_t*>malloc(self.count * sizeof(size_t))
        self.covers = <Cover*>calloc(self.count, sizeof(Cover))
        if self.rows == NULL or self.heap == NULL or self.covers == NULL:
            raise MemoryError()
        for i in range(self.count):
            self.cover(&self.covers[i], self.keep[0][i])
        for i in range(self.count):
            if self.advance(i):
                self.push(i)

    def __dealloc__(self):
        cdef size_t i
        if self.covers != NULL:
            for i in range(self.count):
                free(self.covers[i].starts)
                free(self.covers[i].ends)
        free(self.covers)
        free(self.rows)
        free(self.heap)

    cdef int cover(self, Cover* cover, list intervals) except -1:
        cdef size_t i, count = len(intervals)
        if not count:
            return 0
        cover.starts = <Text*>malloc(count * sizeof(Text))
        cover.ends = <Text*>malloc(count * sizeof(Text))
        if cover.starts == NULL or cover.ends == NULL:
            raise MemoryError()
        for i in range(count):
            start, end = intervals[i]
            cover.starts[i] = text_of(<bytes?>start)
            cover.ends[i].data = NULL
            if end is not None:
                cover.ends[i] = text_of(<bytes?>end)
        cover.count = count
        return 0

    cdef bint is_hidden(self, size_t source, const uint8_t* key, size_t size) noexcept:
        """Return whether an interval of the source's cover contains the key; keys must ascend between calls."""
        cdef Cover* cover = &self.covers[source]
        while cover.at < cover.count and cover.ends[cover.at].data != NULL and (
            compared(cover.ends[cover.at].data, cover.ends[cover.at].size, key, size) <= 0
        ):
            cover.at += 1
        return cover.at < cover.count and (
            compared(cover.starts[cover.at].data, cover.starts[cover.at].size, key, size) <= 0
        )

    cdef bint advance(self, size_t source) except -1:
        """Advance the source to its next row inside the bounds; return whether there is one."""
        cdef RowCursor* row = &self.rows[source]
        cdef bytes block
        cdef uint8_t last[KEY_MAX]
        cdef size_t last_size
        while True:
            if has_more(row):
                step(row)
            else:
                last_size = row.key_size
                memcpy(last, row.key, last_size)
                while not has_more(row):
                    found = next(self.sources[source], None)
                    if found is None:
                        return False
                    block = found
                    self.blocks[source] = block
                    open_block(row, block)
                step(row)
                if compared(row.key, row.key_size, last, last_size) <= 0:
                    refuse(<size_t>-1, "a key does not sort after the last one of the previous block")
            if self.has_upto and compared(row.key, row.key_size, self.upto.data, self.upto.size) > 0:
                return False
            if not self.has_after or compared(row.key, row.key_size, self.after.data, self.after.size) > 0:
                return True

    cdef inline bint is_before(self, size_t left, size_t right) noexcept nogil:
        cdef RowCursor* first = &self.rows[left]
        cdef RowCursor* second = &self.rows[right]
        cdef int order = compared(first.key, first.key_size, second.key, second.key_size)
        return order < 0 or (order == 0 and left < right)

    cdef void push(self, size_t source) noexcept nogil:
        cdef size_t at = self.heaped, parent
        self.heaped = self.heaped + 1
        while at:
            parent = (at - 1) // 2
            if not self.is_before(source, self.heap[parent]):
                break
            self.heap[at] = self.heap[parent]
            at = parent
        self.heap[at] = source

    cdef size_t pop(self) noexcept nogil:
        cdef size_t top = self.heap[0], moved, at = 0, child
        self.heaped = self.heaped - 1
        moved = self.heap[self.heaped]
        while True:
            child = 2 * at + 1
            if child >= self.heaped:
                break
            if child + 1 < self.heaped and self.is_before(self.heap[child + 1], self.heap[child]):
                child += 1
            if not self.is_before(self.heap[child], moved):
                break
            self.heap[at] = self.heap[child]
            at = child
        self.heap[at] = moved
        return top


def merge_blocks(layers, base, hidden, sink, rules, after, upto):
    """Write the merge of the layers (newest first) over the base, for keys after ``after`` and up to ``upto``.

    For each key the newest row of a layer that is not hidden decides: a value is written (as the base's row if that has
    the same identity), a tombstone omits the key. Without such a row the base's row is written unless it is hidden.
    ``hidden`` are ascending intervals for each layer and, as the last item, for the base.
    """
    cdef Layers merged = Layers([*layers, base], hidden, after, upto)
    cdef Encoder encoder = Encoder(sink, rules)
    cdef uint64_t rows_read = 0, kept = 0, added = 0, changed = 0, removed = 0, bytes_changed = 0
    cdef size_t base_number = merged.count - 1, taken, i, source
    cdef size_t* group = <size_t*>malloc(merged.count * sizeof(size_t))
    cdef RowCursor* first
    cdef RowCursor* winner
    cdef RowCursor* own
    cdef RowCursor* row
    cdef bint is_removed
    if group == NULL:
        raise MemoryError()
    try:
        while merged.heaped:
            taken = 0
            winner = NULL
            own = NULL
            first = &merged.rows[merged.heap[0]]
            while merged.heaped:
                row = &merged.rows[merged.heap[0]]
                if taken and compared(row.key, row.key_size, first.key, first.key_size):
                    break
                source = merged.pop()
                group[taken] = source
                taken += 1
                if source == base_number:
                    own = row
                elif winner == NULL and not merged.is_hidden(source, row.key, row.key_size):
                    winner = row
            rows_read += taken
            if winner != NULL:
                is_removed = winner.identity.size == 0
            else:
                is_removed = own == NULL or merged.is_hidden(base_number, own.key, own.key_size)
            if is_removed:
                removed += own != NULL
            elif own != NULL and (winner == NULL or compared(
                winner.identity.data, winner.identity.size, own.identity.data, own.identity.size
            ) == 0):
                encoder.add(own.key, own.key_size, own.identity, own.payload)
                kept += 1
            else:
                encoder.add(winner.key, winner.key_size, winner.identity, winner.payload)
                added += own == NULL
                changed += own != NULL
                bytes_changed += winner.key_size + winner.identity.size + winner.payload.size
            for i in range(taken):
                if merged.advance(group[i]):
                    merged.push(group[i])
        encoder.finish()
    finally:
        free(group)
    return MergeCounts(rows_read, kept, added, changed, removed, bytes_changed)


def spread_rows(blocks, firsts, lasts, uint64_t border):
    """Return the distribution of a layer's rows over ranges with these first and last keys, and the new borders.

    The first result maps slots to (rows, values among them, bytes); slot 2i+1 is range i, slot 2i the gap before it.
    The second result is the keys of values in gaps whose hash is divisible by ``border``.
    """
    cdef RowCursor row
    cdef list first_keys = list(firsts), last_keys = list(lasts), borders = []
    cdef dict spread = {}
    cdef size_t at = 0, count = len(last_keys), slot, current = 0
    cdef uint64_t rows = 0, values = 0, size = 0
    cdef Text first = Text(NULL, 0), last = Text(NULL, 0)
    cdef bytes block
    if len(first_keys) != <Py_ssize_t>count or not border:
        raise ValueError("expected as many first keys as last keys, and a positive number of keys per border")
    if count:
        first, last = text_of(<bytes?>first_keys[0]), text_of(<bytes?>last_keys[0])
    for block in blocks:
        open_block(&row, block)
        while has_more(&row):
            step(&row)
            while at < count and compared(last.data, last.size, row.key, row.key_size) < 0:
                at += 1
                if at < count:
                    first, last = text_of(<bytes?>first_keys[at]), text_of(<bytes?>last_keys[at])
            slot = 2 * at
            if at < count and compared(first.data, first.size, row.key, row.key_size) <= 0:
                slot += 1
            if slot != current:
                if rows:
                    spread[current] = (rows, values, size)
                current = slot
                rows = values = size = 0
            rows += 1
            values += row.identity.size != 0
            size += row.key_size + row.identity.size + row.payload.size
            if row.identity.size and not slot % 2 and lithify_xxh64_bytes(row.key, row.key_size) % border == 0:
                borders.append(bytes_of(row.key, row.key_size))
    if rows:
        spread[current] = (rows, values, size)
    return spread, borders
