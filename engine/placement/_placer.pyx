"""The compiled placer: a dataset's placement is four numbers, a decision two dictionary lookups and a few divisions.

1. ``_home[position]`` and ``_fleet[position]`` are indexes of writable instances, or NOBODY.
2. The positions of a dataset are ``(first + (offset + i) % tenant_size) % space`` for ``i < size``, or a pinned list.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint64_t

from engine.placement._jump_hash cimport jump

from engine.placement.candidates import DATASETS_MAX, iterate_candidates, no_instance_message, picks_at_random, pinned_positions
from engine.placement.candidates import writable_tables
from engine.placement.errors import EmptyRing, NoInstance
from engine.placement.subrings import dataset_subring, effective_sizes, key_hash

cdef enum:
    NOBODY = -1


cdef class Place:
    """The positions of a dataset on the ring, and how one of its shards is selected."""

    cdef int64_t space, first, tenant_size, offset, size
    cdef bint is_random, may_leave
    cdef tuple pinned

    cdef inline int64_t at(self, int64_t index) noexcept:
        """Return the position of the tenant with this index, counted from the dataset's first one."""
        return (self.first + (self.offset + index) % self.tenant_size) % self.space


cdef class Decision:
    """See ``engine.placement.placer``."""

    cdef readonly int64_t shard, position
    cdef readonly object instance
    cdef Placer _placer
    cdef Place _place
    cdef int64_t _pick

    @property
    def dataset_shards(self):
        return self._place.size

    def order(self):
        cdef int64_t index, position
        cdef Place place = self._place
        for index in range(place.size):
            yield _member(place, (self._pick + index) % place.size)
        if place.pinned is None:
            for index in range(place.size, place.tenant_size):
                yield place.at(index)
            for index in range(place.tenant_size, place.space):
                yield (place.first + index) % place.space
        else:
            pinned = frozenset(place.pinned)
            for index in range(place.space):
                position = (place.first + index) % place.space
                if position not in pinned:
                    yield position

    def candidates(self):
        return iterate_candidates(self._placer.tables(self._place), self.order, self._place.size)


cdef int64_t _member(Place place, int64_t index) except -1:
    if place.pinned is not None:
        return place.pinned[index]
    return place.at(index)


cdef class Placer:
    """See ``engine.placement.placer``."""

    cdef readonly object ring, rules, zone
    cdef object _home_table, _fleet_table
    cdef list _instances
    cdef dict _tenants
    cdef Py_ssize_t _remembered
    cdef int32_t* _home
    cdef int32_t* _fleet
    cdef bint _has_home
    cdef uint64_t _random

    def __cinit__(self, ring, rules, str zone not None="", seed=0):
        self._home = self._fleet = NULL
        self.ring, self.rules, self.zone = ring, rules, zone
        self._tenants = {}
        self._remembered = 0
        self._random = seed & 0xFFFFFFFFFFFFFFFF
        self._home_table, self._fleet_table = writable_tables(ring, zone)
        self._has_home = self._home_table is not None
        self._instances = [instance.id for instance in ring.instances]
        numbers = {instance: number for number, instance in enumerate(self._instances)}
        self._home = _numbered(self._home_table if self._has_home else self._fleet_table, numbers, ring.shards)
        self._fleet = _numbered(self._fleet_table, numbers, ring.shards)

    def __dealloc__(self):
        PyMem_Free(self._home)
        PyMem_Free(self._fleet)

    def decide(self, str tenant not None, str dataset not None, uint64_t fingerprint):
        cdef dict datasets = <dict>self._tenants.get(tenant)
        cdef Place place = None if datasets is None else datasets.get(dataset)
        cdef Decision decision
        cdef int32_t number
        if place is None:
            place = self._resolve(tenant, dataset)
        decision = Decision.__new__(Decision)
        decision._placer = self
        decision._place = place
        decision._pick = <int64_t>((self._draw() if place.is_random else fingerprint) % <uint64_t>place.size)
        decision.position = _member(place, decision._pick)
        decision.shard = decision.position + 1
        if self._has_home or place.may_leave:
            number = self._home[decision.position]
            if number != NOBODY:
                decision.instance = <object>self._instances[number]
                return decision
        decision.instance = self._first_instance(decision, tenant)
        return decision

    def tables(self, Place place not None):
        """Return the tables of a dataset's candidates, that of the home zone first."""
        tables = [self._home_table] if self._has_home else []
        if place.may_leave:
            tables.append(self._fleet_table)
        return tables

    def check(self):
        self.ring.check()
        for tenant, datasets in self._tenants.items():
            for dataset in datasets:
                self._check_place(tenant, dataset, datasets[dataset])

    cdef int _check_place(self, str tenant, str dataset, Place place) except -1:
        rule = self.rules.rule(tenant, dataset)
        subring = dataset_subring(
            self.ring.shards, key_hash(tenant), key_hash(dataset), rule.tenant_shards, rule.dataset_shards
        )
        if place.pinned is None:
            assert [place.at(index) for index in range(place.size)] == subring.positions()
        else:
            assert {position + 1 for position in place.pinned} == set(rule.shards) & set(range(1, place.space + 1))
        assert [(place.first + i) % place.space for i in range(place.tenant_size)] == subring.parent().positions()
        return 0

    cdef Place _resolve(self, str tenant, str dataset):
        cdef Place place = Place.__new__(Place)
        if not self._instances:
            raise EmptyRing("no instance hosts any shard: start a segment writer")
        rule = self.rules.rule(tenant, dataset)
        place.space = self.ring.shards
        place.tenant_size, place.size = effective_sizes(place.space, rule.tenant_shards, rule.dataset_shards)
        place.first = jump(key_hash(tenant), place.space)
        place.offset = jump(key_hash(dataset), place.tenant_size)
        place.pinned = pinned_positions(rule.shards, place.space) or None
        if place.pinned is not None:
            place.size = len(place.pinned)
        place.is_random = picks_at_random(rule.load_balancing)
        place.may_leave = not self.zone or self.rules.limits(tenant).may_leave_zone
        if self._remembered >= DATASETS_MAX:
            self._tenants.clear()
            self._remembered = 0
        self._tenants.setdefault(tenant, {})[dataset] = place
        self._remembered += 1
        return place

    cdef object _first_instance(self, Decision decision, str tenant):
        for candidate in decision.candidates():
            return candidate.instance
        raise NoInstance(no_instance_message(self.zone, tenant))

    cdef inline uint64_t _draw(self) noexcept:
        """Return the next number of the SplitMix64 generator."""
        cdef uint64_t mixed
        self._random += <uint64_t>0x9E3779B97F4A7C15
        mixed = (self._random ^ (self._random >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
        mixed = (mixed ^ (mixed >> 27)) * <uint64_t>0x94D049BB133111EB
        return mixed ^ (mixed >> 31)


cdef int32_t* _numbered(table, dict numbers, Py_ssize_t space) except NULL:
    """Return a table as indexes of instances; a validated ring has one owner per position."""
    cdef Py_ssize_t position
    cdef int32_t* owners
    if numbers and len(table) != space:
        raise ValueError(f"a table of {len(table)} owners for {space} shards")
    owners = <int32_t*>PyMem_Malloc(max(1, space) * sizeof(int32_t))
    if owners == NULL:
        raise MemoryError(f"{space} shards of a placer")
    for position in range(space):
        owner = table[position] if numbers else None
        owners[position] = NOBODY if owner is None else numbers[owner]
    return owners
