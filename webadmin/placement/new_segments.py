"""Read from the command log which segments entered the index: the source of usage statistics.

The log contains every segment, registered by a writer or by the recovery of a dead letter, and keeps it while
no control worker runs; so the transactions of writers stay unchanged, and a takeover loses nothing.

1. Entries are numbered before they are committed, so a number may appear late. Missing ones are searched again until
   they are older than any transaction.
2. Imports are not load: their data was written by another system, some time ago.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from engine.core.errors import BadObject
from engine.formats.profile_block.container.metadata import decode_metadata
from engine.formats.profile_block.model import BlockMeta
from webadmin.lanes.profiles.models import Block
from webadmin.schedule.models import Command

log = logging.getLogger(__name__)

COMMANDS_MAX = 4_000
"""Entries per round; a round that is behind continues at the next."""
FIRST_COMMANDS = 2_000
"""How far back the first round reads: older data has no weight any more."""
COMMANDS_PER_STEP = 200
NAMES_PER_QUERY = 500
GAP_KEPT_MS = 10 * 60_000
GAPS_MAX = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """The position in the log; ``gaps`` are missing numbers, with when they were noticed (ms)."""

    read_index: int = 0
    gaps: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSegment:
    """A segment and when it entered the index."""

    at_ms: int
    meta: BlockMeta


def entries_to_read(place: LogPlace, now_ms: int) -> tuple[list[int], LogPlace]:
    """Return the numbers of new entries, and the position behind them."""
    gaps = {int(index): missed_ms for index, missed_ms in place.gaps.items() if now_ms - missed_ms < GAP_KEPT_MS}
    late = list(Command.objects.filter(index__in=list(gaps)).values_list("index", flat=True)) if gaps else []
    start = place.read_index or _first_index()
    fresh = list(
        Command.objects.filter(index__gt=start).order_by("index").values_list("index", flat=True)[:COMMANDS_MAX]
    )
    last = start
    for index in fresh:
        if place.read_index and index - last <= GAPS_MAX:
            gaps |= dict.fromkeys(range(last + 1, index), now_ms)
        last = index
    for index in late:
        gaps.pop(index, None)
    kept = dict(sorted(gaps.items())[-GAPS_MAX:])
    return [*late, *fresh], LogPlace(read_index=last, gaps={str(index): at for index, at in kept.items()})


def _first_index() -> int:
    newest = Command.objects.order_by("-index").values_list("index", flat=True).first() or 0
    return max(0, newest - FIRST_COMMANDS)


def segments_of(indexes: list[int]) -> Iterator[NewSegment]:
    """Yield the segments that these entries registered, in small batches."""
    for start in range(0, len(indexes), COMMANDS_PER_STEP):
        adding = Command.objects.filter(index__in=indexes[start : start + COMMANDS_PER_STEP])
        entries = adding.filter(kind=Command.Kind.ADD_BLOCKS).order_by("index")
        added: dict[tuple[int, str], int] = {}
        for wall_time, change_set in entries.values_list("wall_time", "change_set"):
            at_ms = int(wall_time.timestamp() * 1000)
            for block in change_set.get("added") or []:
                if block["level"] == 0:
                    added[int(block["shard"]), str(block["id"])] = at_ms
        yield from _read(added)


def _read(added: dict[tuple[int, str], int]) -> Iterator[NewSegment]:
    names = list(added)
    for start in range(0, len(names), NAMES_PER_QUERY):
        some = names[start : start + NAMES_PER_QUERY]
        rows = Block.objects.filter(ulid__in=[ulid for _, ulid in some])
        for shard, ulid, metadata in rows.order_by("ulid", "shard").values_list("shard", "ulid", "metadata"):
            if (shard, ulid) not in added:
                continue
            try:
                meta = decode_metadata(bytes(metadata))
            except BadObject as error:  # one damaged row must not stop placement for all
                log.warning("segment_not_counted block=%s error=%s", ulid, error)
                continue
            yield NewSegment(at_ms=added[shard, ulid], meta=meta)
