"""Simulated writers: they store and register segments, sometimes twice, sometimes late."""

from __future__ import annotations

import random
from bisect import bisect
from itertools import accumulate

from engine.core.fast_dataclasses import fast_constructor
from engine.simulation.environment.world import World
from engine.simulation.memory.ids import item_digest, segment_id
from engine.simulation.memory.rows import NewBlock, Share
from engine.simulation.scenario import Fault

share_of, new_block = fast_constructor(Share), fast_constructor(NewBlock)
RETRY_S = 2.0
"""Seconds after which a writer without an answer retries."""


class Writers:
    """Produces segments at the workload's rate until the simulation drains."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        # A separate random generator, so that written data does not depend on the workers.
        self.random = random.Random(f"writers {seed}")
        self.load = world.scenario.workload
        self.delay_max_s = 2 * world.scenario.cleanup_delay_s
        self.poisoned: set[str] = set()
        self._tenants = [f"tenant-{number}" for number in range(self.load.tenants)]
        self._weights = list(accumulate(self.load.tenant_weights()))
        faults = world.scenario.faults
        adds = (Fault.DUPLICATE_ADD, Fault.DIFFERING_ADD, Fault.DELAYED_ADD, Fault.POISON)
        self._faults = [fault for fault in adds if fault in faults]
        self._rate = world.scenario.trouble_rate if self._faults else 0.0

    def start(self) -> None:
        """Schedule the first segment and the first burst."""
        if self.load.segments_per_s > 0:
            self._plan_arrival()
        if self.load.burst_segments:
            self.world.after(0, self._burst)

    def _plan_arrival(self) -> None:
        self.world.after(self.random.expovariate(self.load.segments_per_s), self._arrive)

    def _arrive(self, _: object) -> None:
        if not self.world.is_draining:
            self._write_segment()
            self._plan_arrival()

    def _burst(self, _: object) -> None:
        if self.world.is_draining:
            return
        for _ in range(self.load.burst_segments):
            self._write_segment()
        if self.load.burst_every_s:
            self.world.after(self.load.burst_every_s, self._burst)

    def _write_segment(self) -> None:
        world, draw = self.world, self.random
        world.tally.segments += 1
        block = self._segment(world.tally.segments)
        world.objects.add(block.ulid)
        if self._rate and draw.random() < self._rate:
            self._inject(draw.choice(self._faults), block)
        else:
            self._register(block)

    def _segment(self, number: int) -> NewBlock:
        world, load, draw = self.world, self.load, self.random
        ulid = segment_id(world.now_ms, number)
        if load.tenants_per_segment == 1:
            tenants = [draw.choices(self._tenants, cum_weights=self._weights)[0]] if load.tenants > 1 else self._tenants
        else:
            tenants = self._several_tenants(load.tenants_per_segment)
        if load.services == 1:
            shares = tuple([share_of(tenant, 1, item_digest(ulid, tenant)) for tenant in tenants])
        else:
            names = [f"service-{draw.randrange(load.services)}" for _ in tenants]
            owners = zip(tenants, names, strict=True)
            shares = tuple([share_of(tenant, 1, item_digest(ulid, tenant, name), name) for tenant, name in owners])
        shard = draw.randrange(load.shards) + 1
        size = int(load.segment_bytes * (0.5 + draw.random()))
        return new_block(ulid, "", shard, 0, size, world.now_ms, shares, (), world.now_ms)

    def _several_tenants(self, count: int) -> list[str]:
        """Draw ``count`` tenants and drop duplicates."""
        draw, weights, names = self.random.random, self._weights, self._tenants
        last, total = len(names) - 1, self._weights[-1] + 0.0
        return sorted({names[bisect(weights, draw() * total, 0, last)] for _ in range(count)})

    def _register(self, block: NewBlock) -> None:
        if self.world.is_away():
            self._register_later(RETRY_S, block)
        else:
            self.world.add((block,))

    def _register_later(self, seconds: float, block: NewBlock) -> None:
        self.world.after(seconds, self._register, block)
        self.world.last_arrival_ms = max(self.world.last_arrival_ms, self.world.now_ms + round(seconds * 1000))

    def _inject(self, fault: Fault, block: NewBlock) -> None:
        world, draw = self.world, self.random
        world.tally.faults[fault] = world.tally.faults.get(fault, 0) + 1
        delay_s = draw.random() * self.delay_max_s
        if fault is Fault.DELAYED_ADD:
            self._register_later(delay_s, block)
            return
        self._register(block)
        if fault is Fault.POISON:
            self.poisoned.add(block.ulid)
        elif fault is Fault.DUPLICATE_ADD:
            self._register_later(draw.choice([0.0, RETRY_S, delay_s]), block)
        elif fault is Fault.DIFFERING_ADD:
            other = NewBlock(block.ulid, "", block.shard, 0, block.size_bytes + 1, block.created_at_ms, block.shares)
            self._register_later(delay_s, other)
