"""The reference algorithms that Lithify's placement replaces, for known answers and comparisons only.

Their rules are in ``docs/reference/placement-rules.md``. ``permutation`` maps shards to slots with steps from a
documented generator in place of a seeded library function; ``slot_table`` sorts instances by name, so that a new
instance shifts all later slots; ``incomplete_order`` omits a position if a parent has exactly one more than its child.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.placement.subrings import Subring

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def steps(count: int, seed: int = 0) -> list[int]:
    """Return a step in ``[0, i]`` for each ``i``: the high bits of the i-th number of the SplitMix64 generator."""
    return [((_mixed(seed + index * _GAMMA) >> 32) * (index + 1)) >> 32 for index in range(count)]


def permutation(steps_of: Sequence[int]) -> list[int]:
    """Return the permutation that an inside-out Fisher-Yates shuffle makes with these steps."""
    order: list[int] = []
    for index, step in enumerate(steps_of):
        order.append(index)
        order[index] = order[step]
        order[step] = index
    return order


def slot_table(tokens: Mapping[str, int]) -> tuple[str, ...]:
    """Return the owner of each position: one slot per token, instances sorted by name, slots permuted."""
    slots = [instance for instance in sorted(tokens, key=str.encode) for _ in range(tokens[instance])]
    return tuple(slots[slot] for slot in permutation(steps(len(slots))))


def incomplete_order(dataset: Subring, pick: int) -> Iterator[int]:
    """Yield the positions in fallback order, with the reference's off-by-one error in the rest of a parent."""
    for index in range(dataset.size()):
        yield dataset.at(pick + index)
    child, offset = dataset, dataset.c - dataset.a
    while child.size() < child.space:
        parent = child.parent()
        rest = parent.size() - child.size() - 1
        if rest > 0:
            for index in range(child.size(), parent.size()):
                yield parent.at(offset + index) if parent.size() < parent.space else (child.c + index) % parent.space
        offset, child = parent.c - parent.a, parent


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAllocator:
    """Computes the number of shards with two windows; ``engine.placement.allocator`` states the differences.

    Times are seconds; 0 means that a window was never opened. ``target`` is the result.
    """

    unit_bytes: int
    shards_min: int
    shards_max: int
    burst_window_s: float
    decay_window_s: float
    target: int = 0
    burst_start_s: float = 0.0
    multiplier: int = 0
    decay_start_s: float = 0.0
    previous_need: int = 0
    current_need: int = 0

    def observe(self, usage: int, now_s: float) -> WindowAllocator:
        """Return the state after an observation of ``usage`` bytes/s."""
        need = usage // self.unit_bytes + 1
        burst_start, multiplier = self.burst_start_s, self.multiplier
        missing = need - self.target
        if missing > 0:
            if not burst_start or now_s - burst_start >= self.burst_window_s:
                multiplier = 1
            else:
                multiplier = multiplier * 2 if multiplier < 16 else multiplier
                need = min(2 * need, need + math.ceil(missing * multiplier))
            burst_start = now_s
        previous, current, decay_start = self.previous_need, self.current_need, self.decay_start_s
        if not decay_start or now_s - decay_start >= self.decay_window_s:
            previous, current, decay_start = current, need, now_s
        current = max(current, need)
        return replace(
            self,
            target=min(self.shards_max, max(self.shards_min, previous, current)),
            burst_start_s=burst_start,
            multiplier=multiplier,
            decay_start_s=decay_start,
            previous_need=previous,
            current_need=current,
        )


def _mixed(value: int) -> int:
    value = (value + _GAMMA) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
