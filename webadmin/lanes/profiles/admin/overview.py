"""Front page section of profiles: notices, tiles, objects and queues by level, and the next queues."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from django.utils.safestring import SafeString

from webadmin.adminkit import formatting as show
from webadmin.adminkit.overview import LaneOverview, Tile
from webadmin.adminkit.sections import Notice, Table
from webadmin.base.access.confinement import confined_tenants
from webadmin.base.database import dialect
from webadmin.lanes.profiles.admin import queue_labels
from webadmin.lanes.profiles.deletion_queries import late_requests
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import Block, DeadLetter, DeleteRequest, LineageMark, Tombstone
from webadmin.lanes.profiles.operator_queries import (
    IndexTotals,
    LevelQueues,
    LevelTotal,
    index_totals,
    level_queues,
    next_queues,
)
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.lanes.profiles.services.event_totals import RECOVERED, last_counted_ms
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule.admin import job_page

OLD_TOTALS_SECONDS = 15
RECOVERY_SHOWN_MS = 3_600_000


def profiles_overview(now_ms: int) -> LaneOverview:
    """Return the state of profiles for the front page; ``now_ms`` is command time."""
    totals, queues = index_totals(), level_queues(now_ms)
    block_count = sum(total.block_count for total in totals.live)
    return LaneOverview(
        notices=list(_notices(totals, now_ms)),
        tiles=_tiles(queues, totals),
        sections=[_levels(totals), _queues(queues, now_ms)],
        wide_sections=[_first_queues(now_ms)],
        ahead=_filling(queues, now_ms),
        holds=f"{show.counted(block_count, 'block')} of profiles" if block_count else "",
    )


def _notices(totals: IndexTotals, now_ms: int) -> Iterator[Notice]:
    if late := late_requests(DeleteRequest.objects.all(), now_ms).count():
        text = f"{show.counted(late, 'delete request')} late: objects still hold the data."
        yield Notice(tone="bad", text=text, address=show.list_address(DeleteRequest, state="late"))
    if parked := sum(total.block_count for total in totals.live if total.state == BlockState.PARKED):
        text = f"{show.counted(parked, 'block')} parked: not compacted, still read by queries."
        yield Notice(tone="warn", text=text, address=show.list_address(Block, state=BlockState.PARKED.value))
    if quarantined := Quarantine.objects.filter(released_at_ms=None).count():
        text = f"{show.counted(quarantined, 'block')} in quarantine: damaged or missing, with the reason."
        yield Notice(tone="warn", text=text, address=show.list_address(Quarantine, released_at_ms__isnull=1))
    if totals.waiting_letters:
        waits = "waits" if totals.waiting_letters == 1 else "wait"
        text = f"{show.counted(totals.waiting_letters, 'dead letter')} {waits}: written, and not in the index yet."
        yield Notice(tone="warn", text=text, address=show.list_address(DeadLetter, state="waiting"))
    if (at_ms := _letters_recovered_ms()) is not None:
        ago = show.duration_text(max(dialect.clock_ms() - at_ms, 1000))
        text = f"Dead letters recovered {ago} ago: pushes that writers acknowledged without the index are in it now."
        yield Notice(tone="quiet", text=text)
    if unknown := LineageMark.objects.values_list("unknown_segments", flat=True).first():
        text = (
            f"{show.counted(unknown, 'segment')} in the bucket not in the index: run fsck --repair; they are never "
            "deleted automatically."
        )
        yield Notice(tone="warn", text=text)
    if totals.failing_deletions:
        text = f"{show.counted(totals.failing_deletions, 'object')} not deleted by the store; retried."
        yield Notice(tone="warn", text=text, address=show.list_address(Tombstone, state="failing"))


def _letters_recovered_ms() -> int | None:
    """Return when dead letters were recovered, None if that is no news; they are of all tenants."""
    at_ms = last_counted_ms(RECOVERED) if confined_tenants() is None else None
    return at_ms if at_ms and at_ms > dialect.clock_ms() - RECOVERY_SHOWN_MS else None


def _filling(queues: Sequence[LevelQueues], now_ms: int) -> str:
    """Return how many queues are not ready, and when the next will be, as text; "" if there are none."""
    waiting = sum(queue.queue_count - queue.ready_count for queue in queues)
    next_ready = [queue.next_ready_ms for queue in queues if queue.next_ready_ms is not None]
    if not waiting:
        return ""
    wait = f"; the next is ready in {show.duration_text(max(min(next_ready) - now_ms, 1000))}" if next_ready else ""
    return f"{show.counted(waiting, 'queue')} filling{wait}"


def _tiles(queues: Sequence[LevelQueues], totals: IndexTotals) -> list[Tile]:
    return [
        Tile(
            title="Live objects",
            number=show.count_text(sum(total.block_count for total in totals.live)),
            more=show.size_text(sum(total.byte_count for total in totals.live)),
            address=show.list_address(Block, state="live"),
        ),
        Tile(
            title="Waiting blocks",
            number=show.count_text(sum(queue.block_count for queue in queues)),
            more=f"in {show.counted(sum(queue.queue_count for queue in queues), 'queue')}",
            address=show.list_address(LevelQueue, fill="ready"),
        ),
    ]


def _levels(totals: IndexTotals) -> Table:
    age_seconds = time.time() - totals.counted_at
    is_old = age_seconds > OLD_TOTALS_SECONDS
    more = [f"{show.counted(totals.awaiting_deletion, 'removed object')} awaiting deletion."]
    if is_old:
        more.append(f"Counted {show.duration_text(int(age_seconds * 1000))} ago.")
    return Table(
        title="Objects by level",
        headers=("Level", "Objects", "Bytes", "Of them"),
        rows=[_level_row(level, totals.live) for level in sorted({total.level for total in totals.live})],
        empty="No blocks of profiles yet: start a writer, or run manage.py import_blocks on a bucket.",
        more=" ".join(more),
    )


def _level_row(level: int, totals: Iterable[LevelTotal]) -> tuple[object, ...]:
    here = [total for total in totals if total.level == level]
    states = ", ".join(f"{show.count_text(total.block_count)} {total.held or total.state}" for total in here)
    blocks = show.list_address(Block, level=level, state="live")
    name = "0, segments" if level == 0 else str(level)
    return (
        show.link(blocks, name),
        show.count_text(sum(total.block_count for total in here)),
        show.size_text(sum(total.byte_count for total in here)),
        states,
    )


def _queues(queues: Sequence[LevelQueues], now_ms: int) -> Table:
    return Table(
        title="Queues by level",
        headers=("Level", "Queues", "Blocks", "Oldest", "Ready"),
        rows=[
            (
                show.link(show.list_address(LevelQueue, level=queue.level), queue.level),
                show.count_text(queue.queue_count),
                show.note(show.count_text(queue.block_count), show.size_text(queue.byte_count)),
                show.age(queue.oldest_arrival_ms, now_ms, clock=show.COMMAND_TIME),
                _readiness(queue.ready_count, queue.next_ready_ms, now_ms),
            )
            for queue in queues
        ],
        empty="All queues are empty.",
    )


def _readiness(ready: int, next_ready_ms: int | None, now_ms: int) -> SafeString | str:
    if ready:
        return show.badge(f"{show.count_text(ready)} ready", "busy")
    wait = "" if next_ready_ms is None else f"next in {show.duration_text(max(next_ready_ms - now_ms, 1000))}"
    return show.note(show.badge("not yet", "quiet"), wait)


def _first_queues(now_ms: int) -> Table:
    return Table(
        title="Next queues",
        headers=("Tenant", "Shard", "Level", "Oldest", "Ready", "Why"),
        rows=[
            (
                show.row_link(queue, show.name(job_page.tenant_text(queue.tenant))),
                queue.shard,
                queue.level,
                show.age(queue.oldest_arrival_ms, now_ms, clock=show.COMMAND_TIME),
                queue_labels.ready_badge(fill),
                queue_labels.ready_reason(fill),
            )
            for queue in next_queues(now_ms)
            for fill in [queue_labels.QueueFill.from_row(queue)]
        ],
        empty="No blocks waiting.",
    )
