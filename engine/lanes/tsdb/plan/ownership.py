"""Decide which worker may take a job of a tenant's interval: a hash ring of workers with a shard per tenant.

1. A worker has 512 tokens on a ring of 2^32, a pure function of its name; nothing is stored.
2. A tenant's *shard* is a few workers, drawn by its name; each draw takes the next worker on the ring that is not drawn
   yet. A worker that joins or leaves changes a shard by at most one worker.
3. A job's *owner* is the next worker of the shard after the hash of (tenant, start, end). Partition k of a group
   belongs to the k-th worker after it, so the partitions of one interval are spread over the whole shard.
4. The owner may take a job at once, other workers of the shard after a tenth of a lease, all workers after a whole
   lease.

Ownership applies to waiting jobs only; workers may join and leave without affecting running jobs.
"""

from __future__ import annotations

import hashlib
import math
import random
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from engine.lanes.tsdb.plan.model import group_id
from engine.schedule.errors import PolicyRefused

TOKENS = 512
RING_BITS = 32
HEAD_START_PART = 10
"""Divisor of a lease: the owner's head start, longer than the poll interval of a worker with free capacity."""
SHARDS_KEPT = 4096


@dataclass(frozen=True)
class WorkerRing:
    """The active workers. Equal sets of names are equal rings."""

    workers: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, workers: Iterable[str]) -> WorkerRing:
        return cls(frozenset(workers))

    def following(self, digest: int) -> list[str]:
        """Return all workers in ring order from a position on, the owner of the position first."""
        tokens, owners = self._tokens
        start = bisect_left(tokens, digest)
        found: dict[str, None] = {}
        for step in range(len(owners)):
            found.setdefault(owners[(start + step) % len(owners)])
            if len(found) == len(self.workers):
                break
        return list(found)

    def shard(self, tenant: str, size: float, *, zone: str = "") -> WorkerRing:
        """Return the ring of the tenant's shard: ``size`` workers, or that fraction of all if it is below 1.

        0 stands for all workers.
        """
        count = shard_size(size, len(self.workers))
        return self if count >= len(self.workers) else _drawn(self, tenant, count, zone)

    @cached_property
    def _tokens(self) -> tuple[list[int], list[str]]:
        """The tokens in order and the owner of each; of equal tokens the first name wins."""
        names = sorted(self.workers)
        if not names:
            return [], []
        tokens = np.concatenate([_worker_tokens(name) for name in names])
        order = np.argsort(tokens, kind="stable")
        return tokens[order].tolist(), [names[index // TOKENS] for index in order.tolist()]


@lru_cache(maxsize=SHARDS_KEPT)
def _drawn(ring: WorkerRing, tenant: str, count: int, zone: str) -> WorkerRing:
    draw = random.Random(shard_seed(tenant, zone))
    tokens, owners = ring._tokens
    chosen: set[str] = set()
    while len(chosen) < count:
        place = bisect_left(tokens, draw.getrandbits(RING_BITS))
        while owners[place % len(owners)] in chosen:
            place += 1
        chosen.add(owners[place % len(owners)])
    return WorkerRing(frozenset(chosen))


def shard_size(size: float, workers: int) -> int:
    """Return the number of workers of a shard of ``size``: a number, a fraction of all below 1, or 0 for all.

    Raises PolicyRefused for negative and infinite sizes.
    """
    if not size >= 0 or math.isinf(size):
        raise PolicyRefused(f"shard size {size} is invalid: use 0 for all workers, a fraction below 1, or a number")
    if size == 0:
        return workers
    return min(workers, math.ceil(size * workers if size < 1 else size))


def shard_seed(tenant: str, zone: str = "") -> int:
    """Return the seed of a tenant's draws: the first 8 bytes, big-endian, of the MD5 of tenant (and 0x00 and zone)."""
    text = tenant + (f"\0{zone}" if zone else "")
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalJob:
    """The fields of a waiting job that ownership uses; ``waited_ms`` is how long it has waited."""

    tenant: str
    start_ms: int
    end_ms: int
    partition: int = 0
    waited_ms: int = 0


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether a worker may take a job, after which waiting time, and the reason."""

    is_given: bool
    after_ms: int
    reason: str

    def __bool__(self) -> bool:
        return self.is_given


@dataclass(frozen=True, kw_only=True)
class Ownership:
    """The active workers, the default shard size, and the length of a lease.

    ``sizes`` holds the shard sizes of tenants with another one (both as in ``WorkerRing.shard``).
    """

    ring: WorkerRing
    lease_ms: int
    size: float = 0
    sizes: Mapping[str, float] = field(default_factory=dict)

    def shard(self, tenant: str) -> WorkerRing:
        """Return the workers of a tenant's shard."""
        return self.ring.shard(tenant, self.sizes.get(tenant, self.size))

    def owner(self, job: IntervalJob) -> str | None:
        """Return the worker that owns a job, None if there are no workers."""
        order = self.shard(job.tenant).following(group_id(job.tenant, job.start_ms, job.end_ms))
        return order[job.partition % len(order)] if order else None

    def may_take(self, worker: str, job: IntervalJob) -> Permission:
        """Return whether a worker may take a waiting job now."""
        if worker not in self.shard(job.tenant).workers:
            after_ms, reason = (
                self.lease_ms,
                f"{worker} is not in the tenant's shard; any worker may take the job after a whole lease",
            )
        elif worker != (owner := self.owner(job)):
            after_ms = self.lease_ms // HEAD_START_PART
            reason = f"{worker} is in the tenant's shard; {owner} owns the interval and has a head start"
        else:
            after_ms, reason = 0, f"{worker} owns the interval"
        return Permission(job.waited_ms >= after_ms, after_ms, reason)


@lru_cache(maxsize=SHARDS_KEPT)
def _worker_tokens(name: str) -> np.ndarray:
    """Return the tokens of a worker: unordered 32-bit numbers derived from its name."""
    digest = hashlib.shake_256(name.encode("utf-8", "surrogatepass")).digest(TOKENS * RING_BITS // 8)
    return np.frombuffer(digest, dtype="<u4")
