"""Finds blocks whose data others hold as well: what is left when somebody merged blocks and died before marking them.

A block is a duplicate if, for every series it can have, a block that stays descends from all its sources and can have
that series too. Blocks with more sources stay before others, of those with the same ones the whole before a part, then
the lowest id. A quarantined block covers nothing, since nobody may be able to read it.

What a block descends from is only what its ``meta.json`` says. So the blocks that stay must also be from and up to the
times of the duplicate, and have as many series and samples as the largest of what they are said to hold: a block that
merely claims the ids of others makes nobody delete those. How many are left of a duplicate with tombstones nobody
knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from math import lcm

from engine.lanes.tsdb.plan.model import Duplicate, IntervalBlock, may_share_series
from engine.lanes.tsdb.plan.partitions import PARTITIONS_MAX


def find_duplicates(blocks: Iterable[IntervalBlock], *, keep: frozenset[str] = frozenset()) -> list[Duplicate]:
    """Return the duplicates among live blocks of any keys, by id; those in ``keep`` stay whatever covers them."""
    return weigh_duplicates(blocks, keep=keep)[0]


def weigh_duplicates(
    blocks: Iterable[IntervalBlock], *, keep: frozenset[str] = frozenset()
) -> tuple[list[Duplicate], dict[str, str]]:
    """Return the duplicates like ``find_duplicates``, and by id why others stay that are duplicates by name only."""
    doubts: dict[str, str] = {}
    readable = [block for block in blocks if not block.quarantined and block.sources]
    every = [block.sources for block in readable]
    if len(set(chain.from_iterable(every))) == sum(map(len, every)):
        return [], doubts  # what nearly every snapshot says: no source is in two blocks
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
        kin = staying.get((block.group_key, block.sources[0]), ())
        holders = [other for other, descent in kin if may_share_series(other, block) and sources <= descent]
        if holders and block.ulid not in keep and not block.no_compact and _cover(holders, block):
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
    """Return why these cannot hold all of the block, whatever they descend from; "" if they can."""
    names = ", ".join(other.ulid for other in holders)
    if any(other.min_time_ms > block.min_time_ms or other.max_time_ms < block.max_time_ms for other in holders):
        return f"{names} descend from all that it descends from, but not all are of its whole time"
    if block.tombstones:
        return ""  # who merged it may have left out what was deleted
    for what, there, here in (
        ("series", sum(other.series for other in holders), block.series),
        ("samples", sum(other.samples for other in holders), block.samples),
    ):
        if there < here:
            return f"{names} descend from all that it descends from, but have {there} {what}, it has {here}"
    return ""


def _cover(holders: Sequence[IntervalBlock], block: IntervalBlock) -> bool:
    """Say whether every hash of the block's part is in the part of one of these."""
    finest = lcm(block.partitions, *(other.partitions for other in holders))
    if finest > PARTITIONS_MAX:
        return False
    every = range(block.partition, finest, block.partitions)
    return all(any(digest % other.partitions == other.partition for other in holders) for digest in every)
