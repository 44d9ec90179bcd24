"""Parser of the Parquet footer of a profile table for the positions of its columns, faster than pyarrow's metadata.

Supports uncompressed tables with known columns, types and nesting only; for any other table the caller uses pyarrow,
with which the tests compare the results.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, strlen

from engine.core._byte_buffers cimport Buffer, Cursor, cursor_over, put_bytes, read_uvarint, take
from engine.formats.profile_block.table._thrift_compact cimport BINARY, LIST, STOP, STRUCT, list_header, next_field, read_int, skip

cdef enum:
    PATH_BYTES_MAX = 120
    NESTING_MAX = 8
    COLUMNS_MAX = 21
    REQUIRED = 0
    OPTIONAL = 1
    REPEATED = 2
    UNCOMPRESSED = 0

cdef LeafShape[21] SHAPES
SHAPES[:] = [
    LeafShape(b"ID", AS_FIXED, 0, 0, False),
    LeafShape(b"SeriesIndex", AS_INT32, 0, 0, False),
    LeafShape(b"StacktracePartition", AS_INT64, 0, 0, False),
    LeafShape(b"TotalValue", AS_INT64, 0, 0, False),
    LeafShape(b"Samples.list.element.StacktraceID", AS_INT64, 1, 1, False),
    LeafShape(b"Samples.list.element.Value", AS_INT64, 1, 1, False),
    LeafShape(b"Samples.list.element.Labels.list.element.Key", AS_INT64, 2, 2, True),
    LeafShape(b"Samples.list.element.Labels.list.element.Str", AS_INT64, 3, 2, True),
    LeafShape(b"Samples.list.element.Labels.list.element.Num", AS_INT64, 3, 2, True),
    LeafShape(b"Samples.list.element.Labels.list.element.NumUnit", AS_INT64, 3, 2, True),
    LeafShape(b"Samples.list.element.SpanID", AS_INT64, 2, 1, True),
    LeafShape(b"Samples.list.element.TraceID", AS_FIXED, 2, 1, True),
    LeafShape(b"DropFrames", AS_INT64, 1, 0, True),
    LeafShape(b"KeepFrames", AS_INT64, 1, 0, True),
    LeafShape(b"TimeNanos", AS_INT64, 0, 0, False),
    LeafShape(b"DurationNanos", AS_INT64, 1, 0, True),
    LeafShape(b"Period", AS_INT64, 1, 0, True),
    LeafShape(b"Comments.list.element", AS_INT64, 1, 1, True),
    LeafShape(b"DefaultSampleType", AS_INT64, 1, 0, True),
    LeafShape(b"Annotations.list.element.Key", AS_TEXT, 1, 1, True),
    LeafShape(b"Annotations.list.element.Value", AS_TEXT, 1, 1, True),
]


ctypedef struct Element:
    int64_t physical
    int64_t length
    int64_t repetition
    int64_t children
    const uint8_t* name
    uint64_t name_size


ctypedef struct Parent:
    int64_t children_left
    size_t path_size
    int max_def
    int max_rep


ctypedef struct Columns:
    int leaves[21]      # Leaf of each column, in the order of the file
    int count


cdef LeafShape* shape_of(int leaf) noexcept nogil:
    return &SHAPES[leaf]


cdef int parse_footer(const uint8_t* data, size_t size, Buffer* groups) except -1 nogil:
    """Append a GroupItem per row group; return 0 if the footer has anything unsupported."""
    cdef Cursor cursor = cursor_over(data, size)
    cdef Columns columns
    cdef int number = 0, kind, element_kind = 0
    cdef uint64_t count, index
    cdef int64_t row_count = -1
    columns.count = 0
    while True:
        kind = next_field(&cursor, &number)
        if kind == STOP:
            break
        if number == 2 and kind == LIST:
            count = list_header(&cursor, &element_kind)
            if element_kind != STRUCT or not _parse_schema(&cursor, count, &columns):
                return 0
        elif number == 4 and kind == LIST:
            count = list_header(&cursor, &element_kind)
            if count and (element_kind != STRUCT or columns.count == 0):
                return 0
            for index in range(count):
                if not _parse_group(&cursor, &columns, groups):
                    return 0
        elif number == 3:
            row_count = read_int(&cursor, kind)
        else:
            skip(&cursor, kind)
    # Detects a damaged footer without its row groups, which nothing else would.
    for index in range(groups.size // sizeof(GroupItem)):
        row_count -= (<GroupItem*>groups.data)[index].row_count
    return not cursor.failed and columns.count > 0 and row_count == 0


cdef bint _parse_schema(Cursor* cursor, uint64_t count, Columns* columns) noexcept nogil:
    """Parse the flattened tree of the schema; return false if a leaf is unknown or has another type or nesting."""
    cdef Parent parents[NESTING_MAX]
    cdef uint8_t path[PATH_BYTES_MAX]
    cdef Element element
    cdef Parent* parent
    cdef int depth = 0
    cdef uint64_t index
    for index in range(count):
        _parse_element(cursor, &element)
        if cursor.failed:
            return False
        if index == 0:
            parents[0] = Parent(element.children, 0, 0, 0)
            depth = 1
            continue
        while depth and parents[depth - 1].children_left == 0:
            depth -= 1
        if depth == 0 or depth == NESTING_MAX:
            return False
        parent = &parents[depth - 1]
        parent.children_left -= 1
        if element.name_size + parent.path_size + 1 > PATH_BYTES_MAX or element.repetition < 0:
            return False
        memcpy(path + parent.path_size, element.name, element.name_size)
        parents[depth].path_size = parent.path_size + element.name_size
        parents[depth].max_def = parent.max_def + (element.repetition != REQUIRED)
        parents[depth].max_rep = parent.max_rep + (element.repetition == REPEATED)
        parents[depth].children_left = element.children
        if element.children:
            path[parents[depth].path_size] = b"."
            parents[depth].path_size += 1
            depth += 1
        elif not _add_leaf(columns, &element, &parents[depth], path):
            return False
    return _all_needed(columns)


cdef void _parse_element(Cursor* cursor, Element* element) noexcept nogil:
    cdef int number = 0, kind
    element.physical = element.repetition = -1
    element.length = element.children = 0
    element.name = NULL
    element.name_size = 0
    while True:
        kind = next_field(cursor, &number)
        if kind == STOP:
            break
        if number == 1:
            element.physical = read_int(cursor, kind)
        elif number == 2:
            element.length = read_int(cursor, kind)
        elif number == 3:
            element.repetition = read_int(cursor, kind)
        elif number == 4 and kind == BINARY:
            element.name_size = read_uvarint(cursor)
            element.name = take(cursor, element.name_size)
        elif number == 5:
            element.children = read_int(cursor, kind)
        else:
            skip(cursor, kind)
    if element.name == NULL or element.children < 0:
        cursor.failed = True


cdef bint _add_leaf(Columns* columns, const Element* element, const Parent* place, const uint8_t* path) noexcept nogil:
    """Add a leaf; return false if it is unknown, a duplicate, or has another type or nesting."""
    cdef int leaf, index
    for leaf in range(LEAVES):
        if strlen(SHAPES[leaf].path) == place.path_size and memcmp(SHAPES[leaf].path, path, place.path_size) == 0:
            break
    else:
        return False
    for index in range(columns.count):
        if columns.leaves[index] == leaf:
            return False
    if element.physical != <int64_t>SHAPES[leaf].physical or columns.count == COLUMNS_MAX:
        return False
    if element.physical == <int64_t>AS_FIXED and element.length != 16:
        return False
    if place.max_def != SHAPES[leaf].max_def or place.max_rep != SHAPES[leaf].max_rep:
        return False
    columns.leaves[columns.count] = leaf
    columns.count += 1
    return True


cdef bint _all_needed(const Columns* columns) noexcept nogil:
    cdef bint found[COLUMNS_MAX]
    cdef int index
    for index in range(COLUMNS_MAX):
        found[index] = False
    for index in range(columns.count):
        found[columns.leaves[index]] = True
    for index in range(COLUMNS_MAX):
        if not found[index] and not SHAPES[index].may_miss:
            return False
    return True


cdef int _parse_group(Cursor* cursor, const Columns* columns, Buffer* groups) except -1 nogil:
    """Parse a row group and append it; return 0 if it is unsupported."""
    cdef GroupItem group
    cdef int number = 0, kind, element_kind = 0, index
    cdef uint64_t count
    cdef bint has_columns = False
    group.row_count = -1
    for index in range(LEAVES):
        group.chunks[index] = ChunkItem(False, 0, 0, 0)
    while True:
        kind = next_field(cursor, &number)
        if kind == STOP:
            break
        if number == 1 and kind == LIST:
            count = list_header(cursor, &element_kind)
            if count != <uint64_t>columns.count or element_kind != STRUCT or has_columns:
                return 0
            has_columns = True
            for index in range(columns.count):
                if not _parse_chunk(cursor, &group.chunks[columns.leaves[index]]):
                    return 0
        elif number == 3:
            group.row_count = read_int(cursor, kind)
        else:
            skip(cursor, kind)
    if cursor.failed or not has_columns or group.row_count < 0:
        return 0
    put_bytes(groups, &group, sizeof(GroupItem))
    return 1


cdef bint _parse_chunk(Cursor* cursor, ChunkItem* chunk) noexcept nogil:
    cdef int number = 0, kind
    cdef bint has_metadata = False
    while True:
        kind = next_field(cursor, &number)
        if kind == STOP:
            break
        if number == 3 and kind == STRUCT:
            if not _parse_chunk_metadata(cursor, chunk):
                return False
            has_metadata = True
        elif number == 1 or number > 7:
            return False        # pages in another file, or encrypted
        else:
            skip(cursor, kind)
    chunk.present = True
    return has_metadata and not cursor.failed


cdef bint _parse_chunk_metadata(Cursor* cursor, ChunkItem* chunk) noexcept nogil:
    cdef int number = 0, kind
    cdef int64_t codec = -1, data_page = -1, dictionary_page = -1
    chunk.size = chunk.value_count = -1
    while True:
        kind = next_field(cursor, &number)
        if kind == STOP:
            break
        if number == 4:
            codec = read_int(cursor, kind)
        elif number == 5:
            chunk.value_count = read_int(cursor, kind)
        elif number == 7:
            chunk.size = read_int(cursor, kind)
        elif number == 9:
            data_page = read_int(cursor, kind)
        elif number == 11:
            dictionary_page = read_int(cursor, kind)
        else:
            skip(cursor, kind)
    chunk.start = data_page
    # Without a dictionary page, writers omit its offset or set it to 0.
    if dictionary_page > 0 and dictionary_page < data_page:
        chunk.start = dictionary_page
    return not cursor.failed and codec == UNCOMPRESSED and chunk.start >= 4 and chunk.size >= 0 and chunk.value_count >= 0
