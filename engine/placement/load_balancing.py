"""Whether a dataset's series stay on their shards or every request picks anew.

By fingerprint a series stays on one shard, where it compresses best; if few series carry most of the bytes, that shard
is too hot. So a dataset with a real skew is picked at random for a while. While it is, the skew cannot be seen any
more, so after a hold time the fingerprint gets another trial; if the skew is back, the next hold is twice as long.

The origin's measure is divided by the seconds between two looks, so that it never fires, and its way is one-way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.placement.model import LoadBalancing
from engine.placement.statistics import DatasetStatistics

HOT_UNITS = 2
"""A shard that writes twice its unit is hot."""
SKEW_MIN = 0.5
"""Deviation over mean from which shards count as uneven."""
RELOCATION_RATIO = 2
"""Twice or half as many shards in use as wanted: the dataset is being moved, what is measured means nothing yet."""
HOLD_S = 30 * 60.0
HOLD_MAX_S = 8 * 3600.0
TRIAL_S = 15 * 60.0
"""A skew that is back within this time after a trial began doubles the hold; later it is a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """The choice in force, since when, and how long round robin is held. ``tried_at_s``: the last trial's start."""

    choice: LoadBalancing = LoadBalancing.FINGERPRINT
    since_s: float = 0.0
    hold_s: float = HOLD_S
    tried_at_s: float | None = None


def choose(
    state: Balance, configured: LoadBalancing, statistics: DatasetStatistics, target: int, unit_bytes: int, now_s: float
) -> Balance:
    """Return the choice for a dataset that is to have ``target`` shards."""
    if configured is not LoadBalancing.DYNAMIC:
        return Balance(choice=configured, since_s=now_s) if state.choice is not configured else state
    if state.choice is LoadBalancing.ROUND_ROBIN:
        if now_s - state.since_s < state.hold_s:
            return state
        return replace(state, choice=LoadBalancing.FINGERPRINT, since_s=now_s, tried_at_s=now_s)
    if not is_skewed(statistics, target, unit_bytes):
        return state
    is_back = state.tried_at_s is not None and now_s - state.tried_at_s < TRIAL_S
    hold_s = min(HOLD_MAX_S, 2 * state.hold_s) if is_back else HOLD_S
    return Balance(choice=LoadBalancing.ROUND_ROBIN, since_s=now_s, hold_s=hold_s)


def is_skewed(statistics: DatasetStatistics, target: int, unit_bytes: int) -> bool:
    """Say whether some shard is hot and the shards are uneven, in a dataset that is not being moved."""
    count = len(statistics.shards)
    if count < 2 or count > RELOCATION_RATIO * target or count * RELOCATION_RATIO < target:
        return False
    if not any(shard.usage >= HOT_UNITS * unit_bytes for shard in statistics.shards):
        return False
    return skew(statistics) >= SKEW_MIN


def skew(statistics: DatasetStatistics) -> float:
    """Return deviation over mean: 0 is even."""
    mean = statistics.usage() // max(1, len(statistics.shards))
    return statistics.deviation / mean if mean else 0.0
