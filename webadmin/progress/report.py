"""Backlogs per tenant and level, per shard and in total: their size, rates and time to clear.

Backlogs are stored sums of queues and jobs, rates are counts from the log; no block is read. Admin, API, command and
metrics show the same numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, Q, Sum

from engine.schedule.model import HOLDING_STATES, JobState
from engine.schedule.pauses import PausedScope, is_paused
from engine.schedule.progress import Clearing, Flow, Outlook, clearing, work_seconds
from webadmin.base.database import dialect
from webadmin.progress.due_work import covered_by, filled_queues, held_jobs
from webadmin.progress.log_counts import DROPPED_LANE
from webadmin.progress.models import CountingMark, FlowMinute
from webadmin.schedule.command_log import read_time
from webadmin.schedule.lanes import Waiting, lanes
from webadmin.schedule.models import Job
from webadmin.schedule.pauses import paused_scopes

WINDOW_SECONDS = 15 * 60
"""The default window of rates: long enough for the slowest ordinary merge."""
WINDOW_SECONDS_MAX = 24 * 3600
MINUTE_MS = 60_000
ROWS_MAX = 500
Paused = Sequence[PausedScope]
FLOW_SUMS = {
    name: Sum(name)
    for name in ("arrived_blocks", "arrived_bytes", "drained_blocks", "drained_bytes", "completed_jobs", "run_ms")
} | {
    "dropped_blocks": Sum("drained_blocks", filter=Q(lane=DROPPED_LANE)),
    "dropped_bytes": Sum("drained_bytes", filter=Q(lane=DROPPED_LANE)),
}


@dataclass(slots=True, kw_only=True)
class Backlog:
    """Blocks in queues, in jobs on the schedule, and in parked jobs.

    ``due_blocks`` could be merged now, ``paused_blocks`` are those of them that an operator's pause holds.
    """

    queued_blocks: int = 0
    queued_bytes: int = 0
    due_blocks: int = 0
    due_bytes: int = 0
    paused_blocks: int = 0
    jobs: int = 0
    job_blocks: int = 0
    job_bytes: int = 0
    parked_jobs: int = 0
    parked_blocks: int = 0

    @property
    def blocks(self) -> int:
        """Blocks to be merged, without parked ones."""
        return self.queued_blocks + self.job_blocks

    @property
    def bytes(self) -> int:
        """Bytes to be merged, without parked ones."""
        return self.queued_bytes + self.job_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRow:
    """One tenant and level, one shard, or everything; ``None`` where a row is for all of a kind."""

    backlog: Backlog
    flow: Flow
    tenant: str | None = None
    level: int | None = None
    shard: int | None = None

    @property
    def clearing(self) -> Clearing:
        """When the due work will be done."""
        return clearing(self.backlog.due_blocks, self.flow, paused_blocks=self.backlog.paused_blocks)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for API and command; rates are per second, ``None`` seconds mean never or unknown."""
        backlog, flow, clear = self.backlog, self.flow, self.clearing
        place = {"tenant": self.tenant, "level": self.level, "shard": self.shard}
        return {name: value for name, value in place.items() if value is not None} | {
            "blocks": backlog.blocks,
            "bytes": backlog.bytes,
            "jobs": backlog.jobs,
            "due_blocks": backlog.due_blocks,
            "paused_blocks": backlog.paused_blocks,
            "parked_jobs": backlog.parked_jobs,
            "parked_blocks": backlog.parked_blocks,
            "arrivals_per_second": round(flow.per_second(flow.arrived_blocks), 4),
            "arrival_bytes_per_second": round(flow.per_second(flow.arrived_bytes), 1),
            "drained_per_second": round(flow.per_second(flow.drained_blocks), 4),
            "drained_bytes_per_second": round(flow.per_second(flow.drained_bytes), 1),
            "dropped_per_second": round(flow.per_second(flow.dropped_blocks), 4),
            "jobs_per_second": round(flow.per_second(flow.completed_jobs), 4),
            "clear": clear.outlook.value,
            "clear_seconds": None if clear.seconds is None else round(clear.seconds, 1),
            "clear_words": clear.words(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRow:
    """Sources of a lane that are not on the schedule yet: chunks of a table, branches of a repository."""

    lane: str
    waiting: Waiting
    is_paused: bool

    @property
    def words(self) -> str:
        """When it will be done, as text."""
        return Outlook.PAUSED.value if self.is_paused or self.waiting.is_paused else self.waiting.words

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for API and command."""
        data = self.waiting
        about = {"lane": self.lane, "tenant": data.tenant, "name": data.name, "count": data.count, "unit": data.unit}
        return about | {"bytes": data.size_bytes, "clear_words": self.words}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """The report by tenant and level, and by shard; ``lanes`` are the sources that are not on the schedule yet.

    ``counted_ms_ago`` None: nothing was ever counted.
    """

    window_seconds: float
    counted_ms_ago: int | None
    everything: ProgressRow
    tenants: Sequence[ProgressRow] = field(default_factory=tuple)
    shards: Sequence[ProgressRow] = field(default_factory=tuple)
    lanes: Sequence[LaneRow] = field(default_factory=tuple)

    @property
    def work_seconds(self) -> float:
        """How long one job slot would need for the whole backlog; the basis for sizing a fleet."""
        return work_seconds(self.everything.backlog.bytes, self.everything.flow)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for API and command."""
        return {
            "window_seconds": round(self.window_seconds, 1),
            "counted_ms_ago": self.counted_ms_ago,
            "backlog_work_seconds": round(self.work_seconds, 3),
            "total": self.everything.to_json(),
            "tenants": [row.to_json() for row in self.tenants],
            "shards": [row.to_json() for row in self.shards],
            "lanes": [row.to_json() for row in self.lanes],
        }


def progress_report(*, window_seconds: int = WINDOW_SECONDS, with_lanes: bool = True) -> ProgressReport:
    """Read the backlog and the rates of the last ``window_seconds``; rows with the largest backlog first.

    Without ``with_lanes`` sources that are not on the schedule yet are not read.
    """
    mark = CountingMark.objects.filter(id=1).first()
    clock_ms, now_ms = dialect.clock_ms(), read_time().now_ms
    paused = paused_scopes(now_ms)
    from_ms = clock_ms - window_seconds * 1000
    watched_ms = 0 if mark is None else max(0, clock_ms - max(mark.counting_since_ms, from_ms - from_ms % MINUTE_MS))
    return ProgressReport(
        window_seconds=watched_ms / 1000,
        counted_ms_ago=None if mark is None or not mark.counted_at_ms else max(0, clock_ms - mark.counted_at_ms),
        everything=_rows((), from_ms, watched_ms, now_ms, paused)[0],
        tenants=_rows(("tenant", "level"), from_ms, watched_ms, now_ms, paused),
        shards=_rows(("shard",), from_ms, watched_ms, now_ms, paused),
        lanes=_lane_rows(paused) if with_lanes else (),
    )


def _lane_rows(paused: Paused) -> list[LaneRow]:
    rows = [
        LaneRow(
            lane=lane.name,
            waiting=waiting,
            is_paused=is_paused(paused, lane=lane.name, tenant=waiting.tenant, level=0, planning=True),
        )
        for lane in lanes()
        for waiting in lane.waiting()
    ]
    return sorted(rows, key=lambda row: (row.lane, -row.waiting.count, row.waiting.name))[:ROWS_MAX]


def _rows(by: tuple[str, ...], from_ms: int, watched_ms: int, now_ms: int, paused: Paused) -> list[ProgressRow]:
    backlogs = _backlogs(by, now_ms, paused)
    sums = _summed(FlowMinute.objects.filter(minute_ms__gte=from_ms - from_ms % MINUTE_MS), by, FLOW_SUMS)
    flows = {key: Flow(seconds=watched_ms / 1000, **found) for key, found in sums.items()}
    keys = ({(): None} if not by else {}) | backlogs | flows
    rows = [
        ProgressRow(
            backlog=backlogs.get(key) or Backlog(),
            flow=flows.get(key) or Flow(seconds=watched_ms / 1000),
            **dict(zip(by, key, strict=True)),
        )
        for key in keys
    ]
    order = [(-row.backlog.due_blocks, -row.backlog.blocks, key) for row, key in zip(rows, keys, strict=True)]
    return [row for _, row in sorted(zip(order, rows, strict=True), key=lambda pair: pair[0])][:ROWS_MAX]


def _backlogs(by: tuple[str, ...], now_ms: int, paused: Paused) -> dict[tuple[Any, ...], Backlog]:
    found: defaultdict[tuple[Any, ...], Backlog] = defaultdict(Backlog)
    is_due = Q(ready_at_ms__lte=now_ms)
    sums = {
        "queued_blocks": Sum("block_count"),
        "queued_bytes": Sum("byte_count"),
        "due_blocks": Sum("block_count", filter=is_due),
        "due_bytes": Sum("byte_count", filter=is_due),
        "paused_blocks": Sum("block_count", filter=is_due & covered_by(paused)),
    }
    for queues in filled_queues():
        for row in _grouped(queues, by, sums):
            backlog = found[tuple(row[name] for name in by)]
            for name in sums:
                setattr(backlog, name, getattr(backlog, name) + int(row[name] or 0))
    jobs = Job.objects.filter(state__in=HOLDING_STATES)
    for row in _grouped(
        jobs,
        (*by, "state"),
        {
            "count": Count("id"),
            "sources": Sum("source_count"),
            "bytes": Sum("source_bytes"),
            "paused": Sum("source_count", filter=held_jobs(paused)),
        },
    ):
        _add_jobs(found[tuple(row[name] for name in by)], row)
    return dict(found)


def _add_jobs(backlog: Backlog, row: dict[str, Any]) -> None:
    count, sources, size = row["count"], int(row["sources"] or 0), int(row["bytes"] or 0)
    if row["state"] == JobState.PARKED:
        backlog.parked_jobs, backlog.parked_blocks = backlog.parked_jobs + count, backlog.parked_blocks + sources
        return
    backlog.jobs, backlog.job_blocks, backlog.job_bytes = (
        backlog.jobs + count,
        backlog.job_blocks + sources,
        backlog.job_bytes + size,
    )
    backlog.paused_blocks += int(row["paused"] or 0)
    backlog.due_blocks, backlog.due_bytes = backlog.due_blocks + sources, backlog.due_bytes + size


def _summed(rows: Any, by: tuple[str, ...], sums: Mapping[str, Sum]) -> dict[tuple[Any, ...], dict[str, int]]:
    found = _grouped(rows, by, {f"sum_{name}": total for name, total in sums.items()})
    return {tuple(row[name] for name in by): {name: int(row[f"sum_{name}"] or 0) for name in sums} for row in found}


def _grouped(rows: Any, by: tuple[str, ...], sums: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row of sums per group; without groups one in total."""
    if not by:
        return [rows.order_by().aggregate(**sums)]
    return list(rows.order_by().values(*by).annotate(**sums))
