"""Count new entries of the command log, and record since when due work was not completed.

1. Each entry is counted once: the position of counting is one row, which is locked and updated with the counts.
2. Entries are numbered before they are committed, so a number may appear late. Missing numbers are stored and searched
   again, until they are older than any transaction.
3. Both due work and completions are observed here, so a standstill is counted and not inferred.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from django.db import transaction
from django.db.models import F

from webadmin.base.database import dialect
from webadmin.progress.due_work import is_work_due
from webadmin.progress.log_counts import LogCounts, count_commands
from webadmin.progress.models import CountingMark, FlowMinute, FlowTotal
from webadmin.schedule.models import Command

COMMANDS_PER_STEP = 500
STEPS_PER_RUN = 40
GAP_KEPT_MS = 10 * 60_000
"""Longer than the longest transaction."""
GAPS_MAX = 2_000
FLOWS_KEPT_MS = 24 * 3_600_000
ROWS_PER_QUERY = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CountOutcome:
    """The number of entries counted, and whether there are more."""

    commands: int
    is_behind: bool


def count_log() -> CountOutcome:
    """Count new entries, up to a limit, and delete flows that are older than all windows."""
    counted = 0
    for _ in range(STEPS_PER_RUN):
        step = _count_step()
        counted += step
        if step < COMMANDS_PER_STEP:
            break
    FlowMinute.objects.filter(minute_ms__lt=dialect.clock_ms() - FLOWS_KEPT_MS).delete()
    return CountOutcome(commands=counted, is_behind=step >= COMMANDS_PER_STEP)


def _count_step() -> int:
    with transaction.atomic(durable=True):
        CountingMark.objects.get_or_create(id=1)
        mark = dialect.locked(CountingMark.objects.order_by("id")).get()
        now_ms = dialect.clock_ms()
        commands = _next_commands(mark, now_ms)
        counts = count_commands(commands)
        _add_flows(counts)
        _add_totals(counts)
        mark.counting_since_ms = mark.counting_since_ms or now_ms
        mark.last_completed_ms = max(mark.last_completed_ms or 0, counts.last_completed_ms or 0) or None
        mark.stalled_since_ms = _stalled_since(mark, now_ms, has_completed=counts.last_completed_ms is not None)
        mark.counted_at_ms = now_ms
        mark.save()
    return len(commands)


def _next_commands(mark: CountingMark, now_ms: int) -> list[Command]:
    """Return entries to count, and move the mark and its gaps behind them."""
    late = list(Command.objects.filter(index__in=[int(index) for index in mark.gaps])) if mark.gaps else []
    fresh = list(Command.objects.filter(index__gt=mark.counted_index).order_by("index")[:COMMANDS_PER_STEP])
    gaps = {index: missed for index, missed in mark.gaps.items() if now_ms - missed < GAP_KEPT_MS}
    if fresh:
        present = {command.index for command in fresh}
        # The first run begins where the log does: earlier, deleted entries are not missing.
        first = mark.counted_index + 1 if mark.counted_index else fresh[0].index
        steps = zip([first - 1, *sorted(present)], sorted(present), strict=False)
        # Moving a log beyond a lost index leaves a gap that is never filled.
        missing = [index for low, high in steps if high - low <= GAPS_MAX for index in range(low + 1, high)]
        gaps |= {str(index): now_ms for index in missing[-GAPS_MAX:]}
        mark.counted_index = fresh[-1].index
    for command in late:
        gaps.pop(str(command.index), None)
    mark.gaps = gaps
    return [*late, *fresh]


def _stalled_since(mark: CountingMark, now_ms: int, *, has_completed: bool) -> int | None:
    if not is_work_due():
        return None
    return now_ms if has_completed or mark.stalled_since_ms is None else mark.stalled_since_ms


def _add_flows(counts: LogCounts) -> None:
    keys = sorted(counts.flows)
    for start in range(0, len(keys), ROWS_PER_QUERY):
        wanted = keys[start : start + ROWS_PER_QUERY]
        minutes = {minute for minute, *_ in wanted}
        shards = {shard for *_, shard, _ in wanted}
        known = {
            (row.minute_ms, row.lane, row.tenant, row.shard, row.level): row
            for row in FlowMinute.objects.filter(minute_ms__in=minutes, shard__in=shards)
        }
        fresh: list[FlowMinute] = []
        changed: list[FlowMinute] = []
        for key in wanted:
            row = known.get(key)
            (fresh if row is None else changed).append(_flow_row(row, key, counts.flows[key]))
        FlowMinute.objects.bulk_create(fresh)
        if changed:
            FlowMinute.objects.bulk_update(changed, FLOW_FIELDS)


FLOW_FIELDS = ("arrived_blocks", "arrived_bytes", "drained_blocks", "drained_bytes", "completed_jobs", "run_ms")


def _flow_row(row: FlowMinute | None, key: tuple[int, str, str, int, int], sums: Counter[str]) -> FlowMinute:
    if row is None:
        names = ("minute_ms", "lane", "tenant", "shard", "level")
        row = FlowMinute(**dict(zip(names, key, strict=True)))
    for name in FLOW_FIELDS:
        setattr(row, name, getattr(row, name) + sums[name])
    return row


def _add_totals(counts: LogCounts) -> None:
    for (lane, level, name), count in sorted(counts.totals.items()):
        if not count:
            continue
        row = FlowTotal.objects.filter(lane=lane, level=level, name=name)
        if not row.update(count=F("count") + count):
            FlowTotal.objects.create(lane=lane, level=level, name=name, count=count)
