"""How many shards a dataset gets: as many units as it writes, more while it rises, fewer when it has long been less.

Growth is that of the origin: a rise within the burst window of the last one adds more than what is missing, up to twice
what is needed. The way down differs: ``reference.WindowAllocator`` falls off a cliff between one and two decay windows
after a peak; here a need holds in full for one window and then goes in two steps. Steps are few, and at common times,
because with every change of the count most series go to another shard. Decision:
``docs/decisions/0020-stable-shard-placement.md``.

1. A target never falls within one decay window of the need that set it.
2. Two windows after a need ended nothing of it is left.
3. A target falls twice per decay window at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.placement.model import TenantLimits

BOOST_MAX = 16
BUCKETS_PER_WINDOW = 8
"""Needs are remembered per eighth of a decay window, so a state is small and bounded."""
GONE_AFTER_WINDOWS = 1.375
"""From the end of a need's stretch (an eighth) to the next time of falling (a half) that is at most two windows."""
FALLS_PER_WINDOW = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The most shards needed in a stretch of time, and when the last look at it was."""

    bucket: int
    shards: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One dataset's state. ``target`` is the number of shards; ``risen_at_s`` None means it never rose.

    ``stretch`` counts the stretches of time at whose beginning a target may fall.
    """

    target: int = 0
    stretch: int = -1
    risen_at_s: float | None = None
    boost: int = 0
    needs: tuple[Need, ...] = ()

    @classmethod
    def restored(cls, shards: int, at_s: float) -> Allocation:
        """Return the state of a dataset whose rule says so many shards as of this time, and no more is known."""
        return cls(needs=(Need(bucket=-1, shards=shards, at_s=at_s),))


def allocate(state: Allocation, usage: int, now_s: float, limits: TenantLimits) -> Allocation:
    """Return the state after a usage of so many bytes/s was seen at this time."""
    state = _risen(state, max(0, usage) // limits.unit_bytes + 1, now_s, limits)
    fading = max((_faded(need, now_s, limits.decay_window_s) for need in state.needs), default=0)
    stretch = math.floor(now_s / limits.decay_window_s * FALLS_PER_WINDOW)
    held = state.target if stretch == state.stretch else 0
    target = min(limits.dataset_shards_max, max(limits.dataset_shards_min, fading, held))
    return replace(state, target=target, stretch=stretch)


def _risen(state: Allocation, shards: int, now_s: float, limits: TenantLimits) -> Allocation:
    missing = shards - state.target
    risen_at_s, boost = state.risen_at_s, state.boost
    if missing > 0:
        if risen_at_s is None or now_s - risen_at_s >= limits.burst_window_s:
            boost = 1
        else:
            boost = min(BOOST_MAX, 2 * boost)
            shards = min(2 * shards, shards + missing * boost)
        risen_at_s = now_s
    needs = tuple(_remembered(state.needs, shards, now_s, limits.decay_window_s))
    return replace(state, risen_at_s=risen_at_s, boost=boost, needs=needs)


def _remembered(needs: tuple[Need, ...], shards: int, now_s: float, window_s: float) -> Iterator[Need]:
    """Yield the needs that still count, the newest last; what falls into one stretch of time is one need."""
    bucket = math.floor(now_s / window_s * BUCKETS_PER_WINDOW)
    for need in needs:
        if need.bucket == bucket:
            shards = max(shards, need.shards)
        elif now_s - need.at_s < GONE_AFTER_WINDOWS * window_s:
            yield need
    yield Need(bucket=bucket, shards=shards, at_s=now_s)


def _faded(need: Need, now_s: float, window_s: float) -> int:
    """Return what is left of a need: all of it within a window, then half of it, then nothing."""
    age = max(0.0, now_s - need.at_s) / window_s
    if age < 1:
        return need.shards
    return (need.shards + 1) // 2 if age < GONE_AFTER_WINDOWS else 0
