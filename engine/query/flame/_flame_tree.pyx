"""The compiled tree of merged stacks of ``engine.query.flame.tree``.

Returns the same results and errors as ``_flame_tree_py``. Names are Python objects, numbered in a dict; everything else
is in C arrays that are filled without the GIL. Nodes of the merged tree are looked up by (parent, name) in a hash table
with a seed per process.
"""

import os

cimport cython
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from engine.core._byte_buffers cimport Buffer, buffer_free, put_bytes
from engine.formats.profile_block.symbols._interning cimport Slots, lithify_mix, slots_fill, slots_free, slots_make_room, tag_of

from engine.core.errors import BadReference, LimitExceeded
from engine.query.flame.nodes import NODE_NUMBERS_MAX, Nodes

cdef uint64_t SEED = int.from_bytes(os.urandom(8), "little")

cdef uint64_t VALUE_MAX = 0x7FFFFFFFFFFFFFFF


ctypedef struct FlameNode:
    int64_t own
    uint32_t parent
    uint32_t name


ctypedef struct Source:
    size_t name_count
    size_t node_count
    size_t location_count
    size_t frame_count
    const int32_t* parents
    const int32_t* locations
    const int32_t* frame_starts
    const int32_t* frames


ctypedef struct Scratch:
    int64_t* sums           # per node of the stack tree
    uint8_t* reached        # per node: it has a value, or has one below it
    int32_t* numbers        # per name: its number in the merged tree, WANTED or UNUSED
    int32_t* places         # per node: where it is in the merged tree


cdef enum:
    UNUSED = -1
    WANTED = -2


cdef void* _array(size_t count, size_t size) except NULL:
    cdef void* items = calloc(count + 1, size)
    if items == NULL:
        raise MemoryError()
    return items


cdef void _scratch_free(Scratch* scratch) noexcept nogil:
    free(scratch.sums)
    free(scratch.reached)
    free(scratch.numbers)


cdef int64_t _add_up(int64_t* sums, size_t count, const int32_t* nodes, const int64_t* values, size_t rows,
                     int64_t before) except -1 nogil:
    """Add the rows' values per node; return the total with what was there before."""
    cdef uint64_t total = <uint64_t>before
    cdef size_t row
    cdef int32_t node
    for row in range(rows):
        node = nodes[row]
        if node < 0 or <size_t>node >= count:
            with gil:
                raise BadReference("profiles", -1, f"stack {node} is not in a tree of {count} nodes")
        if values[row] > 0:
            total += <uint64_t>values[row]      # both below 2^63, so this cannot wrap
            if total > VALUE_MAX:
                with gil:
                    raise LimitExceeded("profiles", -1, "the values add up to more than 2^63 - 1")
            sums[node] += values[row]
    return <int64_t>total


cdef int _reach(const Source* source, Scratch* scratch) except -1 nogil:
    """Check all parents, then mark the nodes that lead to a value and the names they bear."""
    cdef size_t node, frame
    cdef int32_t parent, location, start, end, name
    for node in range(source.node_count):
        parent = source.parents[node]
        if parent < -1 or (parent >= 0 and <size_t>parent >= node):
            with gil:
                raise BadReference("symbols", -1, f"node {node} of a stack tree has parent {parent}")
    node = source.node_count
    while node > 0:
        node -= 1
        if scratch.sums[node] > 0:
            scratch.reached[node] = True
        if scratch.reached[node] and source.parents[node] >= 0:
            scratch.reached[source.parents[node]] = True
    for node in range(source.node_count):
        if not scratch.reached[node] or source.parents[node] < 0:
            continue
        location = source.locations[node]
        if location < 0 or <size_t>location >= source.location_count:
            with gil:
                raise BadReference(
                    "symbols", -1, f"a stack tree names location {location} of {source.location_count}"
                )
        start, end = source.frame_starts[location], source.frame_starts[location + 1]
        if start < 0 or end < start or <size_t>end > source.frame_count:
            with gil:
                raise BadReference(
                    "symbols", -1, f"location {location} has the frames {start} to {end} of {source.frame_count}"
                )
        for frame in range(<size_t>start, <size_t>end):
            name = source.frames[frame]
            if name < 0 or <size_t>name >= source.name_count:
                with gil:
                    raise BadReference("symbols", -1, f"location {location} has name {name} of {source.name_count}")
            scratch.numbers[name] = WANTED
    return 0


@cython.final
cdef class StackMerge:
    """Merges the rows of any number of datasets into one tree of at most ``nodes_max`` nodes besides the root."""

    cdef readonly int64_t total
    cdef bint _is_busy          # the GIL is released while the tree grows: no other thread may use it then
    cdef size_t _nodes_max
    cdef dict _names
    cdef Buffer _nodes
    cdef Slots _slots

    def __cinit__(self):
        self._nodes = Buffer(NULL, 0, 0)
        self._slots = Slots(NULL, 0, 0)

    def __dealloc__(self):
        buffer_free(&self._nodes)
        slots_free(&self._slots)

    def __init__(self, nodes_max=NODE_NUMBERS_MAX):
        cdef FlameNode root = FlameNode(0, 0, 0)
        self._nodes_max = min(nodes_max, NODE_NUMBERS_MAX)
        self._names = {}
        if self._nodes.size == 0:
            put_bytes(&self._nodes, &root, sizeof(FlameNode))

    @property
    def node_count(self):
        """Nodes so far, the root not counted."""
        return self._nodes.size // sizeof(FlameNode) - 1

    def add(self, names, const int32_t[::1] parents, const int32_t[::1] locations, const int32_t[::1] frame_starts,
            const int32_t[::1] frames, const int32_t[::1] nodes, const int64_t[::1] values):
        """Add rows (a node of this stack tree, a value); see ``FlameTree.add_stacks`` for what the columns are.

        Returns the number that each node of the stack tree has in this merge, 0 for those that lead to no value;
        numbers are given in the order of the nodes. Raises BadReference or LimitExceeded, and then has added no value.
        """
        cdef Source source
        cdef Scratch scratch = Scratch(NULL, NULL, NULL, NULL)
        cdef int64_t total
        cdef size_t name, rows = nodes.shape[0]
        cdef const int32_t* row_nodes = &nodes[0] if nodes.shape[0] else NULL
        cdef const int64_t* row_values = &values[0] if values.shape[0] else NULL
        if values.shape[0] != nodes.shape[0] or locations.shape[0] != parents.shape[0] or not frame_starts.shape[0]:
            raise ValueError("columns of one table differ in length")
        placed = np.zeros(parents.shape[0], np.int32)
        cdef int32_t[::1] places = placed
        source.name_count = len(names)
        source.node_count = parents.shape[0]
        source.location_count = frame_starts.shape[0] - 1
        source.frame_count = frames.shape[0]
        source.parents = &parents[0] if parents.shape[0] else NULL
        source.locations = &locations[0] if locations.shape[0] else NULL
        source.frame_starts = &frame_starts[0]
        source.frames = &frames[0] if frames.shape[0] else NULL
        self._take()
        try:
            scratch.sums = <int64_t*>_array(source.node_count, sizeof(int64_t))
            scratch.reached = <uint8_t*>_array(source.node_count, sizeof(uint8_t))
            scratch.places = &places[0] if source.node_count else NULL
            scratch.numbers = <int32_t*>_array(source.name_count, sizeof(int32_t))
            with nogil:
                for name in range(source.name_count):
                    scratch.numbers[name] = UNUSED
                total = _add_up(scratch.sums, source.node_count, row_nodes, row_values, rows, self.total)
                _reach(&source, &scratch)
            for name in range(source.name_count):
                if scratch.numbers[name] == WANTED:
                    scratch.numbers[name] = self._number(names[name])
            with nogil:
                self._walk(&source, &scratch)
            self.total = total
            return placed
        finally:
            self._is_busy = False
            _scratch_free(&scratch)

    cdef int _take(self) except -1:
        if self._is_busy:
            raise RuntimeError("a tree is used while something is added to it")
        self._is_busy = True
        return 0

    cdef int32_t _number(self, name) except -1:
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = len(self._names)
        return known

    cdef int _walk(self, const Source* source, Scratch* scratch) except -1 nogil:
        """Find or make the place of every node that leads to a value, parents first, then add the values."""
        cdef size_t node
        cdef uint32_t place
        cdef int32_t location, frame, start
        for node in range(source.node_count):
            if not scratch.reached[node] or source.parents[node] < 0:
                continue        # a root is the root, whose place is 0
            place = <uint32_t>scratch.places[source.parents[node]]
            location = source.locations[node]
            start, frame = source.frame_starts[location], source.frame_starts[location + 1]
            while frame > start:
                frame -= 1
                place = self._child(place, <uint32_t>scratch.numbers[source.frames[frame]])
            scratch.places[node] = <int32_t>place
        for node in range(source.node_count):
            if scratch.sums[node] > 0:
                (<FlameNode*>self._nodes.data)[scratch.places[node]].own += scratch.sums[node]
        return 0

    cdef inline uint32_t _child(self, uint32_t parent, uint32_t name) except? 0xFFFFFFFF nogil:
        cdef uint32_t tag = tag_of(lithify_mix(SEED, (<uint64_t>parent << 32) | name))
        cdef size_t position, index
        cdef FlameNode* known
        cdef FlameNode made
        slots_make_room(&self._slots)
        position = tag & self._slots.mask
        while self._slots.entries[position]:
            if self._slots.entries[position] >> 32 == tag:
                index = <uint32_t>self._slots.entries[position] - 1
                known = &(<FlameNode*>self._nodes.data)[index]
                if known.parent == parent and known.name == name:
                    return <uint32_t>index
            position = (position + 1) & self._slots.mask
        index = self._nodes.size // sizeof(FlameNode)
        if index > self._nodes_max:
            with gil:
                raise LimitExceeded("symbols", -1, f"the merged tree has more than {self._nodes_max} nodes")
        made.own, made.parent, made.name = 0, parent, name
        put_bytes(&self._nodes, &made, sizeof(FlameNode))
        slots_fill(&self._slots, position, tag, index)
        return <uint32_t>index

    def nodes(self):
        """Return the tree so far."""
        cdef const FlameNode* items
        cdef size_t count, name_count, index
        cdef int64_t* totals = NULL
        cdef int32_t* links = NULL
        cdef int32_t* ranks = NULL
        self._take()
        try:
            items = <const FlameNode*>self._nodes.data
            count, name_count = self._nodes.size // sizeof(FlameNode), len(self._names)
            every_name = list(self._names)
            totals = <int64_t*>_array(count, sizeof(int64_t))
            links = <int32_t*>_array(3 * count, sizeof(int32_t))
            ranks = <int32_t*>_array(name_count, sizeof(int32_t))
            with nogil:
                for index in range(name_count):
                    ranks[index] = UNUSED
                _add_totals(items, count, totals, ranks)
            used = sorted([index for index in range(name_count) if ranks[index] == WANTED], key=every_name.__getitem__)
            for index, name in enumerate(used):
                ranks[name] = <int32_t>index
            return _ordered([every_name[name] for name in used], items, count, totals, ranks, links)
        finally:
            self._is_busy = False
            free(totals)
            free(links)
            free(ranks)


cdef void _add_totals(const FlameNode* items, size_t count, int64_t* totals, int32_t* ranks) noexcept nogil:
    """Give every node its total, and mark the names of those that have one."""
    cdef size_t node = count
    while node > 1:
        node -= 1
        totals[node] += items[node].own
        totals[items[node].parent] += totals[node]
        if totals[node]:
            ranks[items[node].name] = WANTED
    totals[0] += items[0].own


cdef object _ordered(list names, const FlameNode* items, size_t count, const int64_t* totals, const int32_t* ranks,
                     int32_t* links):
    """Return the nodes that have a total, a level after the other, children in the order of their names' ranks."""
    cdef size_t filled = 1, node
    with nogil:
        for node in range(1, count):
            filled += totals[node] != 0
    columns = [np.empty(filled, kind) for kind in (np.int32, np.int32, np.int64, np.int64)]
    columns.append(np.empty(filled + 1, np.int32))
    cdef int32_t[::1] parents = columns[0]
    cdef int32_t[::1] name_refs = columns[1]
    cdef int64_t[::1] own = columns[2]
    cdef int64_t[::1] own_totals = columns[3]
    cdef int32_t[::1] starts = columns[4]
    cdef int32_t[::1] order = np.empty(filled, np.int32)
    cdef int32_t* first = links
    cdef int32_t* next = links + count
    cdef int32_t* by_rank = links + 2 * count
    cdef int32_t* rank_ends = <int32_t*>_array(len(names) + 1, sizeof(int32_t))
    cdef size_t place, end
    cdef int32_t child
    try:
        with nogil:
            _sort_by_rank(items, count, totals, ranks, by_rank, rank_ends)
            node = filled - 1
            while node > 0:             # the highest rank first, so that each chain of children ascends
                node -= 1
                child = by_rank[node]
                next[child] = first[items[child].parent]
                first[items[child].parent] = child
            order[0], parents[0], name_refs[0] = 0, -1, -1
            end = 1
            for place in range(filled):
                node = <size_t>order[place]
                own[place], own_totals[place], starts[place] = items[node].own, totals[node], <int32_t>end
                child = first[node]
                while child:
                    order[end], parents[end], name_refs[end] = child, <int32_t>place, ranks[items[child].name]
                    end += 1
                    child = next[child]
            starts[filled] = <int32_t>end
    finally:
        free(rank_ends)
    return Nodes(names, *columns)


cdef void _sort_by_rank(const FlameNode* items, size_t count, const int64_t* totals, const int32_t* ranks,
                        int32_t* by_rank, int32_t* rank_ends) noexcept nogil:
    """Put the nodes that have a total, without the root, in ascending order of rank; ``rank_ends`` is all zeros."""
    cdef size_t node, rank = 0
    cdef int32_t before = 0, own
    for node in range(1, count):
        if totals[node]:
            rank_ends[ranks[items[node].name]] += 1
    # Counts become starts; every rank up to the last used one has a node, so a zero ends them.
    while rank_ends[rank]:
        own = rank_ends[rank]
        rank_ends[rank] = before
        before += own
        rank += 1
    for node in range(1, count):
        if totals[node]:
            rank = <size_t>ranks[items[node].name]
            by_rank[rank_ends[rank]] = <int32_t>node
            rank_ends[rank] += 1


def outermost(const int32_t[::1] parents, const int32_t[::1] name_refs, const int32_t[::1] child_starts,
              size_t name_count):
    """Return for every node (see ``Nodes``) whether no ancestor has its name; False for the root."""
    cdef size_t count = parents.shape[0]
    found = np.zeros(count, np.bool_)
    cdef uint8_t[::1] flags = found.view(np.uint8)
    cdef int32_t[::1] following = np.array(child_starts)
    cdef int32_t* open_names = <int32_t*>_array(name_count, sizeof(int32_t))
    cdef int32_t node = 0
    try:
        with nogil:
            while node >= 0:
                if following[node] < child_starts[node + 1]:
                    following[node] += 1
                    node = following[node] - 1
                    flags[node] = open_names[name_refs[node]] == 0
                    open_names[name_refs[node]] += 1
                else:
                    if node > 0:
                        open_names[name_refs[node]] -= 1
                    node = parents[node]
    finally:
        free(open_names)
    return found
