"""Load balancing of a dataset over its shards: by fingerprint or at random.

By fingerprint, a series stays on one shard, where it compresses best; if few series carry most of the bytes, that shard
is overloaded. A skewed dataset is therefore balanced at random for a hold time. As its skew cannot be observed in that
time, the fingerprint is tried again afterwards; if the skew returns, the next hold time is twice as long.

The reference algorithm divides its measure of skew by the seconds between observations, so that it never exceeds the
threshold, and it never returns to the fingerprint (``docs/reference/placement-rules.md``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.placement.model import LoadBalancing
from engine.placement.statistics import DatasetStatistics

HOT_UNITS = 2
"""Usage in units from which a shard is hot."""
SKEW_MIN = 0.5
"""Standard deviation over mean from which shards are uneven."""
RELOCATION_RATIO = 2
"""Ratio of used to target shards (or the reverse) beyond which a dataset is being moved and its skew is ignored."""
HOLD_S = 30 * 60.0
HOLD_MAX_S = 8 * 3600.0
TRIAL_S = 15 * 60.0
"""A skew that returns within this time after the start of a trial doubles the hold time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """The current mode, its start, and the hold time of round robin. ``tried_at_s`` is the start of the last trial."""

    choice: LoadBalancing = LoadBalancing.FINGERPRINT
    since_s: float = 0.0
    hold_s: float = HOLD_S
    tried_at_s: float | None = None


def choose_balance(
    state: Balance, configured: LoadBalancing, statistics: DatasetStatistics, target: int, unit_bytes: int, now_s: float
) -> Balance:
    """Return the balance of a dataset with ``target`` shards at the time ``now_s``."""
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
    """Return whether a shard is hot and the shards are uneven, in a dataset that is not being moved."""
    count = len(statistics.shards)
    if count < 2 or count > RELOCATION_RATIO * target or count * RELOCATION_RATIO < target:
        return False
    if not any(shard.usage >= HOT_UNITS * unit_bytes for shard in statistics.shards):
        return False
    return skew(statistics) >= SKEW_MIN


def skew(statistics: DatasetStatistics) -> float:
    """Return the standard deviation over the mean; 0 is even."""
    mean = statistics.usage() // max(1, len(statistics.shards))
    return statistics.deviation / mean if mean else 0.0
