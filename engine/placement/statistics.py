"""What every dataset writes, per shard and writer, gathered from the metadata of segments.

``UsageAccumulator`` is fed with every segment that enters the index, also those recovered from dead letters; it can be
written down and read back (``documents``), so that it survives whoever keeps it. ``build`` gives the statistics that
rules are made of, in an order that does not depend on that of arrival.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from engine.formats.profile_block.model import DATASET_PROFILES, BlockMeta
from engine.placement.model import DatasetKey
from engine.placement.rate import RateEstimator, smoothed_level

HALF_LIFE_S = 180.0
RETENTION_S = 15 * 60.0
COUNTERS_MAX = 1_000_000
"""Counters of (tenant, dataset, shard, owner) kept at most; beyond them new ones are not counted."""

CounterKey = tuple[str, str, int, str]
"""Tenant, dataset, shard, owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one segment says about one dataset; ``usage`` is bytes, or the cost of CostModel."""

    tenant: str
    dataset: str
    shard: int
    owner: str
    usage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """What a dataset in a segment costs besides its bytes, in bytes: many small ones are not as cheap as one large.

    With both at 0, bytes alone decide, as in the origin.
    """

    dataset_bytes: int = 0
    label_set_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardUsage:
    """Bytes/s of one dataset through one shard by one writer; a shard with two writers appears twice."""

    shard: int
    owner: str
    usage: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetStatistics:
    """One dataset's shards in order; ``deviation`` is the smoothed standard deviation of their usages."""

    tenant: str
    dataset: str
    shards: tuple[ShardUsage, ...]
    deviation: float

    def usage(self) -> int:
        return sum(shard.usage for shard in self.shards)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementStatistics:
    """All datasets at one moment, by tenant and name."""

    created_at_ms: int
    datasets: tuple[DatasetStatistics, ...] = ()


@dataclass(slots=True)
class Deviation:
    """A dataset's smoothed deviation and when it was last looked at."""

    level: float
    at_s: float


@dataclass(slots=True)
class UsageAccumulator:
    """The state behind the statistics. Not safe to feed from several threads at once."""

    half_life_s: float = HALF_LIFE_S
    retention_s: float = RETENTION_S
    counters: dict[CounterKey, RateEstimator] = field(default_factory=dict)
    deviations: dict[DatasetKey, Deviation] = field(default_factory=dict)

    def add(self, sample: Sample, now_s: float) -> None:
        """Count one sample."""
        key = (sample.tenant, sample.dataset, sample.shard, sample.owner)
        counter = self.counters.get(key)
        if counter is None:
            if len(self.counters) >= COUNTERS_MAX:
                return
            counter = self.counters[key] = RateEstimator(self.half_life_s, now_s)
        counter.add(sample.usage, now_s)

    def expire(self, now_s: float) -> None:
        """Forget what was not written for the retention time."""
        self.counters = {
            key: counter for key, counter in self.counters.items() if now_s - counter.last_s < self.retention_s
        }
        alive = {key[:2] for key in self.counters}
        self.deviations = {key: level for key, level in self.deviations.items() if key in alive}

    def build(self, now_s: float, created_at_ms: int) -> PlacementStatistics:
        """Return the statistics as of now, and remember each dataset's deviation for the next time."""
        datasets = []
        for key, usages in self._by_dataset(now_s).items():
            deviation = self._smoothed(key, population_deviation([one.usage for one in usages]), now_s)
            datasets.append(DatasetStatistics(tenant=key[0], dataset=key[1], shards=tuple(usages), deviation=deviation))
        return PlacementStatistics(created_at_ms=created_at_ms, datasets=tuple(datasets))

    def _by_dataset(self, now_s: float) -> Mapping[DatasetKey, list[ShardUsage]]:
        found: dict[DatasetKey, list[ShardUsage]] = {}
        for tenant, dataset, shard, owner in sorted(self.counters):
            rate = self.counters[tenant, dataset, shard, owner].value(now_s)
            usage = ShardUsage(shard=shard, owner=owner, usage=math.floor(rate + 0.5))
            found.setdefault((tenant, dataset), []).append(usage)
        return found

    def _smoothed(self, key: DatasetKey, deviation: float, now_s: float) -> float:
        """A level, not an amount: with the origin's rate of it, the answer depends on how often one asks."""
        before = self.deviations.get(key)
        level = (
            deviation
            if before is None
            else smoothed_level(before.level, deviation, now_s - before.at_s, self.half_life_s)
        )
        self.deviations[key] = Deviation(level, now_s)
        return level


def population_deviation(usages: list[int]) -> float:
    """Return the standard deviation of all of them (not of a sample)."""
    mean = sum(usages) / len(usages)
    return math.sqrt(sum((usage - mean) ** 2 for usage in usages) / len(usages))


def samples(meta: BlockMeta, cost: CostModel | None = None) -> Iterator[Sample]:
    """Yield what a segment's metadata says about its datasets; its writer is their owner."""
    for dataset in meta.datasets:
        if dataset.format == DATASET_PROFILES:
            extra = (cost.dataset_bytes + cost.label_set_bytes * len(dataset.labels)) if cost else 0
            yield Sample(
                tenant=dataset.tenant,
                dataset=dataset.name,
                shard=meta.shard,
                owner=meta.created_by,
                usage=dataset.size + extra,
            )
