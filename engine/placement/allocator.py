"""The number of shards of a dataset, which follows its usage: quickly upwards, slowly downwards.

Growth is that of the origin: a rise within the burst window of the last one adds more than what is missing, up to twice
what is needed. The way down differs: ``reference.WindowAllocator`` falls off a cliff between one and two decay windows
after a peak; here a need holds in full for one window and then goes in two steps. Steps are few, and at common times,
because with every change of the count most series go to another shard. Decision:
``docs/decisions/0020-stable-shard-placement.md``.

1. A target never falls within one decay window of the need that set it.
2. A need has no effect later than two windows after it ended.
3. A target falls at most twice per decay window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.placement.model import TenantLimits

BOOST_MAX = 16
BUCKETS_PER_WINDOW = 8
"""Needs are stored per eighth of a decay window, which bounds the size of a state."""
EXPIRY_WINDOWS = 1.375
"""With the length of a bucket (an eighth) and the wait for the next fall (a half), this is at most two windows."""
FALLS_PER_WINDOW = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The largest number of shards needed in a bucket of time, and the time of its last observation."""

    bucket: int
    shards: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The state of a dataset. ``target`` is its number of shards; ``risen_at_s`` is None if it never rose.

    ``stretch`` is the number of the current half decay window; a target falls only when it changes.
    """

    target: int = 0
    stretch: int = -1
    risen_at_s: float | None = None
    boost: int = 0
    needs: tuple[Need, ...] = ()

    @classmethod
    def restored(cls, shards: int, at_s: float) -> Allocation:
        """Return the state of a dataset of which only the number of shards at a time is known."""
        return cls(needs=(Need(bucket=-1, shards=shards, at_s=at_s),))


def allocate(state: Allocation, usage: int, now_s: float, limits: TenantLimits) -> Allocation:
    """Return the state after an observation of ``usage`` bytes/s."""
    state = _risen(state, max(0, usage) // limits.unit_bytes + 1, now_s, limits)
    decayed = max((_decayed(need, now_s, limits.decay_window_s) for need in state.needs), default=0)
    stretch = math.floor(now_s / limits.decay_window_s * FALLS_PER_WINDOW)
    held = state.target if stretch == state.stretch else 0
    target = min(limits.dataset_shards_max, max(limits.dataset_shards_min, decayed, held))
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
    needs = tuple(_live_needs(state.needs, shards, now_s, limits.decay_window_s))
    return replace(state, risen_at_s=risen_at_s, boost=boost, needs=needs)


def _live_needs(needs: tuple[Need, ...], shards: int, now_s: float, window_s: float) -> Iterator[Need]:
    """Yield the needs that have not expired, the newest last; needs of one bucket of time are merged."""
    bucket = math.floor(now_s / window_s * BUCKETS_PER_WINDOW)
    for need in needs:
        if need.bucket == bucket:
            shards = max(shards, need.shards)
        elif now_s - need.at_s < EXPIRY_WINDOWS * window_s:
            yield need
    yield Need(bucket=bucket, shards=shards, at_s=now_s)


def _decayed(need: Need, now_s: float, window_s: float) -> int:
    """Return the decayed number of shards: all for one window, then half of it, then 0."""
    age = max(0.0, now_s - need.at_s) / window_s
    if age < 1:
        return need.shards
    return (need.shards + 1) // 2 if age < EXPIRY_WINDOWS else 0
