"""Simulation of a fleet under a drifting load: balance, movement and over-allocation of two algorithms.

Lithify's and the reference algorithm get the same datasets (sizes by Zipf's law), drift, usage estimates and changes of
membership. Deterministic: a scenario and a seed determine the outcome.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine.placement.allocator import Allocation, allocate
from engine.placement.model import DatasetKey, DatasetRule, Instance, PlacementRules, TenantLimits
from engine.placement.placer import Placer
from engine.placement.plots.traces import window_allocator
from engine.placement.rate import smoothed_level
from engine.placement.reference import WindowAllocator, slot_table
from engine.placement.ring import EMPTY_RING, FLEET, Ring, change_ring

START_S = 1_000_000.0
SERIES_PER_UNIT = 8
SERIES_MAX = 400
"""Large datasets have many series; with few series no placement could be even."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetScenario:
    """The size of the fleet and of its load, and how both change."""

    datasets: int = 10_000
    tenants: int = 200
    instances: int = 100
    units: float = 4_000.0  # initial usage of all datasets, in units
    duration_s: float = 4 * 3600.0
    tick_s: float = 60.0
    drift: float = 0.05  # standard deviation of the change per tick, in natural logarithms
    spike_chance: float = 0.0002  # probability per tick that the usage of a dataset rises to ten times
    spike_ticks: int = 10
    membership_every: int = 20  # ticks between changes of membership
    half_life_s: float = 180.0
    limits: TenantLimits = field(default_factory=TenantLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFigures:
    """The results of one algorithm. Fractions are of the usage at the time.

    ``imbalance`` is the load of the most loaded instance over the mean, averaged over all ticks.
    ``moved_by_membership`` is the mean over the changes of membership, ``largest_move`` their maximum;
    ``moved_by_rules`` is per tick. ``over_allocation`` is allocated over needed shards, ``is_short`` the fraction of
    (dataset, tick) with fewer shards than needed.
    """

    imbalance: float
    moved_by_membership: float
    largest_move: float
    moved_by_rules: float
    over_allocation: float
    is_short: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOutcome:
    """The figures of both algorithms, and a lower bound for the movement per change of membership."""

    ours: FleetFigures
    reference: FleetFigures
    unavoidable: float


@dataclass(slots=True)
class _Dataset:
    key: DatasetKey
    base: float  # units
    factor: float = 1.0
    spike_ends: int = -1
    level: float = 0.0
    series: list[tuple[int, float]] = field(default_factory=list)

    def units(self, tick: int) -> float:
        return self.base * self.factor * (10.0 if tick < self.spike_ends else 1.0)


class _Algorithm:
    """The ring, allocations and counters of one algorithm."""

    def __init__(self, make_ring: Callable[[Ring, Sequence[Instance]], Ring], limits: TenantLimits) -> None:
        self.make_ring = make_ring
        self.limits = limits
        self.ring = EMPTY_RING
        self.rules: dict[DatasetKey, DatasetRule] = {}
        self.instance_of: dict[tuple[DatasetKey, int], str] = {}
        self.imbalances: list[float] = []
        self.membership_moves: list[float] = []
        self.rule_moves: list[float] = []
        self.allocated = self.needed = self.short = self.allocations = 0

    def place(self, datasets: Sequence[_Dataset], tick: int) -> float:
        """Place all series; return the fraction of usage whose instance has changed."""
        placer = Placer(self.ring, PlacementRules(datasets=self.rules, default_limits=self.limits))
        loads = dict.fromkeys((one.id for one in self.ring.instances), 0.0)
        moved = total = 0.0
        for dataset in datasets:
            units = dataset.units(tick)
            tenant, name = dataset.key
            for number, (fingerprint, share) in enumerate(dataset.series):
                instance = placer.decide(tenant, name, fingerprint).instance
                usage = units * share
                loads[instance] += usage
                total += usage
                before = self.instance_of.get((dataset.key, number))
                if before is not instance:
                    self.instance_of[dataset.key, number] = instance
                    moved += usage if before is not None and before != instance else 0.0
        self.imbalances.append(max(loads.values()) * len(loads) / total)
        return moved / total

    def change_members(self, instances: Sequence[Instance]) -> None:
        self.ring = self.make_ring(self.ring, instances)

    def record(self, key: DatasetKey, shards: int, needed: int) -> None:
        """Count allocated and needed shards; a dataset of one shard has no rule."""
        self.allocated, self.needed = self.allocated + shards, self.needed + needed
        self.allocations += 1
        self.short += shards < needed
        if shards > 1:
            self.rules[key] = DatasetRule(tenant_shards=0, dataset_shards=shards)
        else:
            self.rules.pop(key, None)

    def figures(self) -> FleetFigures:
        return FleetFigures(
            imbalance=_mean(self.imbalances),
            moved_by_membership=_mean(self.membership_moves),
            largest_move=max(self.membership_moves, default=0.0),
            moved_by_rules=_mean(self.rule_moves),
            over_allocation=self.allocated / max(1, self.needed),
            is_short=self.short / max(1, self.allocations),
        )


def simulate_fleet(scenario: FleetScenario, seed: int) -> FleetOutcome:
    """Run both algorithms on the same history."""
    draw = random.Random(seed)
    datasets = _datasets(scenario, draw)
    ours, reference = _Algorithm(change_ring, scenario.limits), _Algorithm(_reference_ring, scenario.limits)
    allocations: dict[DatasetKey, tuple[Allocation, WindowAllocator]] = {}
    numbers, created, unavoidable = list(range(scenario.instances)), scenario.instances, []
    for algorithm in (ours, reference):
        algorithm.change_members(_instances(numbers))
    for tick in range(int(scenario.duration_s / scenario.tick_s)):
        _drift(datasets, scenario, draw, tick)
        _allocate_all(datasets, scenario, tick, (ours, reference), allocations)
        for algorithm in (ours, reference):
            algorithm.rule_moves.append(algorithm.place(datasets, tick))
        if tick % scenario.membership_every == scenario.membership_every - 1:
            joins = len(numbers) < scenario.instances
            if joins:
                numbers.append(created)
                created += 1
            else:
                numbers.pop(draw.randrange(len(numbers)))
            unavoidable.append(1 / max(len(numbers), scenario.instances))
            for algorithm in (ours, reference):
                algorithm.change_members(_instances(numbers))
                algorithm.membership_moves.append(algorithm.place(datasets, tick))
    return FleetOutcome(ours=ours.figures(), reference=reference.figures(), unavoidable=_mean(unavoidable))


def _datasets(scenario: FleetScenario, draw: random.Random) -> list[_Dataset]:
    harmonic = sum(1 / rank for rank in range(1, scenario.datasets + 1))
    found = []
    for rank in range(1, scenario.datasets + 1):
        base = scenario.units / harmonic / rank
        count = min(SERIES_MAX, max(1, round(SERIES_PER_UNIT * base)))
        series = [(draw.getrandbits(64), 1 / count) for _ in range(count)]
        key = (f"tenant-{draw.randrange(scenario.tenants)}", f"service-{rank}")
        found.append(_Dataset(key=key, base=base, level=base, series=series))
    return found


def _drift(datasets: Sequence[_Dataset], scenario: FleetScenario, draw: random.Random, tick: int) -> None:
    """Change the size of each dataset by a mean-reverting random walk, and start spikes."""
    for dataset in datasets:
        dataset.factor *= math.exp(draw.gauss(0, scenario.drift) - 0.01 * math.log(dataset.factor))
        if draw.random() < scenario.spike_chance:
            dataset.spike_ends = tick + scenario.spike_ticks
        weight = scenario.tick_s
        dataset.level = smoothed_level(dataset.level, dataset.units(tick), weight, scenario.half_life_s)


def _allocate_all(
    datasets: Sequence[_Dataset],
    scenario: FleetScenario,
    tick: int,
    algorithms: tuple[_Algorithm, _Algorithm],
    allocations: dict[DatasetKey, tuple[Allocation, WindowAllocator]],
) -> None:
    now_s, unit = START_S + tick * scenario.tick_s, scenario.limits.unit_bytes
    for dataset in datasets:
        needed = min(scenario.limits.dataset_shards_max, math.floor(dataset.units(tick)) + 1)
        known = allocations.get(dataset.key)
        if known is None and dataset.level < 1 and needed == 1:
            continue  # small datasets have one shard under both algorithms
        ours, reference = known or (Allocation(), window_allocator(scenario.limits))
        usage = round(dataset.level * unit)
        ours, reference = allocate(ours, usage, now_s, scenario.limits), reference.observe(usage, now_s)
        allocations[dataset.key] = ours, reference
        for algorithm, shards in zip(algorithms, (ours.target, reference.target), strict=True):
            algorithm.record(dataset.key, shards, needed)


def _reference_ring(before: Ring, instances: Sequence[Instance]) -> Ring:
    """Return a ring with one position per token, assigned from the sorted names at every change."""
    owners = slot_table({one.id: one.tokens for one in instances})
    return Ring(
        version=before.version + 1,
        shards=len(owners),
        instances=tuple(sorted(instances, key=lambda one: one.id)),
        tables={FLEET: owners},
    )


def _instances(numbers: Sequence[int]) -> list[Instance]:
    return [Instance(id=f"writer-{number}") for number in numbers]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
