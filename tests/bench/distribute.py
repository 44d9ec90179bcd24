"""Speed of placement decisions, and profiles moved when any one of 100 instances leaves or joins.

10,000 datasets of 200 tenants; the limits of a third are raised as adaptive placement would. A decision gives shard and
instance; the fallback order is not computed. Movement is measured for every instance that can leave or join; the
figures are those of the worst one, by its ratio to the minimum of any placement.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Sequence

from engine.core.kernels import implementation_of
from engine.placement import _placer_py, placer
from engine.placement.model import DatasetRule, Instance, PlacementRules
from engine.placement.ring import EMPTY_RING, Ring, change_ring
from engine.placement.what_if import Movement, PlacedSeries, compare_placements
from tests.bench.figures import Figures

NAME = "distribute"
SEED = 20261121
DATASETS, TENANTS, INSTANCES = 10_000, 200, 100
REPEATS, REPEATS_FULL = 9, 31
POSITIONS = 20
TWIN_DECISIONS = 100


def run(full: bool = False) -> Figures:
    """Run the benchmark; ``full`` lets every instance leave and join, the default every fifth."""
    series, rules = load(SEED)
    ring = ring_of(range(INSTANCES))
    ours = decisions_per_s(placer.Placer(ring, rules), series, REPEATS_FULL if full else REPEATS)
    twin = decisions_per_s(_placer_py.Placer(ring, rules), series[:TWIN_DECISIONS], 1)
    movements = [
        movement
        for position in range(0, INSTANCES, 1 if full else INSTANCES // POSITIONS)
        for movement in leave_and_join(position, rules, series)
    ]
    worst = max(movements, key=lambda movement: movement.moved / movement.unavoidable)
    return Figures(
        parameters={
            "implementation": implementation_of("engine.placement._placer"),
            "datasets": DATASETS,
            "instances": INSTANCES,
            "shards": ring.shards,
            "changes": len(movements),
        },
        figures={
            "decisions_per_s_core": ours,
            "speedup_over_twin": ours / twin,
            "moved_fraction": worst.moved,
            "unavoidable_fraction": worst.unavoidable,
            "moved_to_unavoidable": worst.moved / worst.unavoidable,
            "moved_shards_fraction": max(movement.moved_shards for movement in movements),
        },
    )


def load(seed: int) -> tuple[list[PlacedSeries], PlacementRules]:
    """Return one series per dataset, and rules that give a third of the datasets more than one shard."""
    draw = random.Random(seed)
    series = [
        PlacedSeries(tenant=f"tenant-{number % TENANTS}", dataset=f"service-{number}", fingerprint=draw.getrandbits(64))
        for number in range(DATASETS)
    ]
    raised = {
        (one.tenant, one.dataset): DatasetRule(tenant_shards=0, dataset_shards=draw.randint(2, 16))
        for one in series
        if draw.random() < 1 / 3
    }
    return series, PlacementRules(datasets=raised)


def ring_of(numbers: Sequence[int], before: Ring = EMPTY_RING) -> Ring:
    """Return the ring of these writers, derived from an earlier one."""
    return change_ring(before, [Instance(id=f"writer-{number}") for number in numbers])


def leave_and_join(position: int, rules: PlacementRules, series: list[PlacedSeries]) -> list[Movement]:
    """Return the movement when the instance at this position leaves 100, and when it joins 99."""
    others = [number for number in range(INSTANCES) if number != position]
    full, fewer = ring_of(range(INSTANCES)), ring_of(others)
    changes = [(full, ring_of(others, full)), (fewer, ring_of(range(INSTANCES), fewer))]
    return [compare_placements(before, after, rules, series, new_rules=rules) for before, after in changes]


def decisions_per_s(placed: placer.Placer, series: Sequence[PlacedSeries], repeats: int) -> float:
    """Return decisions per second of one core, median of the repeats, with the datasets shuffled."""
    wanted = [(one.tenant, one.dataset, one.fingerprint) for one in series]
    random.Random(SEED).shuffle(wanted)
    decide = placed.decide
    times = []
    for _ in range(repeats + 1):
        gc.collect()
        started = time.process_time()
        for tenant, dataset, fingerprint in wanted:
            decide(tenant, dataset, fingerprint)
        times.append(time.process_time() - started)
    return len(wanted) / statistics.median(times[1:])  # The first round also computes each dataset's place.
