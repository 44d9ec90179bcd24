"""Find blocks whose data other blocks contain: left behind when a compactor died before it marked its sources.

A block is a duplicate if, for every series it can have, a kept block descends from all its sources and can have that
series. Blocks with more sources are kept before others; with equal sources, the one with fewer partitions, then the
lowest id. Quarantined blocks contain nothing, since they may be unreadable.

Descent is only what ``meta.json`` states. The kept blocks must therefore also span the duplicate's time range and have
at least as many series and samples as the largest of the blocks they claim to contain, so a block that merely claims
the ids of others causes no deletion. For a duplicate with tombstones the remaining numbers are unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from math import lcm

from engine.lanes.tsdb.plan.model import Duplicate, IntervalBlock, may_share_series
from engine.lanes.tsdb.plan.partitions import PARTITIONS_MAX


def find_duplicates(blocks: Iterable[IntervalBlock], *, keep: frozenset[str] = frozenset()) -> list[Duplicate]:
    """Return the duplicates among live blocks of any keys, ordered by id; blocks in ``keep`` are never duplicates."""
    return assess_duplicates(blocks, keep=keep)[0]


def assess_duplicates(
    blocks: Iterable[IntervalBlock], *, keep: frozenset[str] = frozenset()
) -> tuple[list[Duplicate], dict[str, str]]:
    """Return the duplicates like ``find_duplicates``, and by id why other apparent duplicates are kept."""
    doubts: dict[str, str] = {}
    readable = [block for block in blocks if not block.quarantined and block.sources]
    every = [block.sources for block in readable]
    if len(set(chain.from_iterable(every))) == sum(map(len, every)):
        return [], doubts  # The usual case: no source is in two blocks.
    held = Counter(chain.from_iterable(every))
    doubtful = [block for block in readable if held[block.sources[0]] > 1 and held[block.sources[-1]] > 1]
    if not doubtful:
        return [], doubts
    sought = {block.sources[0] for block in doubtful}
    holding = [block for block in readable if not sought.isdisjoint(block.sources)]
    staying: dict[tuple[str, str], list[tuple[IntervalBlock, frozenset[str]]]] = {}
    found = []
    for block in sorted(holding, key=_precedence):
        sources = frozenset(block.sources)
        related = staying.get((block.group_key, block.sources[0]), ())
        holders = [other for other, descent in related if may_share_series(other, block) and sources <= descent]
        if holders and block.ulid not in keep and not block.no_compact and _cover_partition(holders, block):
            doubt = _doubt(holders, block)
            if not doubt:
                found.append(Duplicate(block=block, covered_by=tuple(other.ulid for other in holders)))
                continue
            doubts[block.ulid] = doubt
        for source in sources:
            staying.setdefault((block.group_key, source), []).append((block, sources))
    return sorted(found, key=lambda duplicate: duplicate.block.ulid), doubts


def _precedence(block: IntervalBlock) -> tuple[int, int, str]:
    return (-len(set(block.sources)), block.partitions, block.ulid)


def _doubt(holders: Sequence[IntervalBlock], block: IntervalBlock) -> str:
    """Return why these blocks cannot contain all of ``block``, despite their sources; "" if they can."""
    names = ", ".join(other.ulid for other in holders)
    if any(other.min_time_ms > block.min_time_ms or other.max_time_ms < block.max_time_ms for other in holders):
        return f"{names} descend from its sources but do not cover its time range"
    if block.tombstones:
        return ""  # A merge may have dropped deleted samples.
    for what, there, here in (
        ("series", sum(other.series for other in holders), block.series),
        ("samples", sum(other.samples for other in holders), block.samples),
    ):
        if there < here:
            return f"{names} descend from its sources but have {there} {what}, it has {here}"
    return ""


def _cover_partition(holders: Sequence[IntervalBlock], block: IntervalBlock) -> bool:
    """Return whether every hash of the block's partition is in the partition of one of these."""
    finest = lcm(block.partitions, *(other.partitions for other in holders))
    if finest > PARTITIONS_MAX:
        return False
    every = range(block.partition, finest, block.partitions)
    return all(any(digest % other.partitions == other.partition for other in holders) for digest in every)
