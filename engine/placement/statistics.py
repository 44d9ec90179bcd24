"""Usage statistics of datasets per shard and writer, from the metadata of segments.

``UsageAccumulator`` gets every segment that enters the index, including those recovered from dead letters;
``state_document`` stores it. ``build`` returns the statistics for building rules; they do not depend on the order of
arrival.
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
"""Maximum number of counters (tenant, dataset, shard, owner); samples that would need more are dropped."""

CounterKey = tuple[str, str, int, str]
"""Tenant, dataset, shard, owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The usage of one dataset by one segment: bytes, or the cost by CostModel."""

    tenant: str
    dataset: str
    shard: int
    owner: str
    usage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """The overhead of a dataset in a segment, in bytes, so that many small datasets cost more than a large one.

    With both at 0, only bytes count, as in the reference algorithm.
    """

    dataset_bytes: int = 0
    label_set_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardUsage:
    """Bytes/s of one dataset in one shard by one writer; a shard with two writers appears twice."""

    shard: int
    owner: str
    usage: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetStatistics:
    """The sorted shards of a dataset; ``deviation`` is the smoothed standard deviation of their usages."""

    tenant: str
    dataset: str
    shards: tuple[ShardUsage, ...]
    deviation: float

    def usage(self) -> int:
        return sum(shard.usage for shard in self.shards)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementStatistics:
    """The statistics of all datasets at one time, sorted by tenant and name."""

    created_at_ms: int
    datasets: tuple[DatasetStatistics, ...] = ()


@dataclass(slots=True)
class Deviation:
    """The smoothed deviation of a dataset and the time of its last update."""

    level: float
    at_s: float


@dataclass(slots=True)
class UsageAccumulator:
    """Accumulates samples. Not thread-safe."""

    half_life_s: float = HALF_LIFE_S
    retention_s: float = RETENTION_S
    counters: dict[CounterKey, RateEstimator] = field(default_factory=dict)
    deviations: dict[DatasetKey, Deviation] = field(default_factory=dict)

    def add(self, sample: Sample, now_s: float) -> None:
        """Add a sample."""
        key = (sample.tenant, sample.dataset, sample.shard, sample.owner)
        counter = self.counters.get(key)
        if counter is None:
            if len(self.counters) >= COUNTERS_MAX:
                return
            counter = self.counters[key] = RateEstimator(self.half_life_s, now_s)
        counter.add(sample.usage, now_s)

    def expire(self, now_s: float) -> None:
        """Remove counters without a sample within the retention time."""
        self.counters = {
            key: counter for key, counter in self.counters.items() if now_s - counter.last_s < self.retention_s
        }
        alive = {key[:2] for key in self.counters}
        self.deviations = {key: level for key, level in self.deviations.items() if key in alive}

    def build(self, now_s: float, created_at_ms: int) -> PlacementStatistics:
        """Return the statistics at ``now_s`` and update the smoothed deviations."""
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
        # A level, not a rate: a rate, as in the reference algorithm, depends on the frequency of builds.
        before = self.deviations.get(key)
        level = (
            deviation
            if before is None
            else smoothed_level(before.level, deviation, now_s - before.at_s, self.half_life_s)
        )
        self.deviations[key] = Deviation(level, now_s)
        return level


def population_deviation(usages: list[int]) -> float:
    """Return the population standard deviation."""
    mean = sum(usages) / len(usages)
    return math.sqrt(sum((usage - mean) ** 2 for usage in usages) / len(usages))


def segment_samples(meta: BlockMeta, cost: CostModel | None = None) -> Iterator[Sample]:
    """Yield a sample per dataset of a segment, whose writer is the owner."""
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
