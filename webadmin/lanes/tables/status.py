"""Status of tables: backlog, rates, unpublished changes, stuck chunks, and the state derived from them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q, Sum

from engine.schedule.model import JobState
from webadmin.adminkit.state_label import StateLabel
from webadmin.base.database import dialect
from webadmin.lanes.tables.models import BadFile, Chunk, DataSource, Registration
from webadmin.lanes.tables.states import ChunkOutcome, ChunkStatus, TaskState
from webadmin.lanes.tables.task_models import Task, TaskChunk, TaskDependency, TaskSegment

WITHOUT_TASK = Q(state=ChunkStatus.UNSTABLE, is_quarantined=False) & (Q(task=None) | ~Q(task__state=TaskState.OPEN))
"""Chunks worth compacting that no open task owns."""
RATE_WINDOW_MS = 3_600_000
"""Window over which arrivals and rewritten bytes are counted for the time to clear."""
STUCK_MS = 600_000
"""Time without a task after which a chunk worth compacting counts as stuck: many controller cycles."""
SHARING_MAX = 1_000
"""Maximum number of possibly stuck chunks for which shared segments are checked."""
RECENT_MAX = 5_000
"""Maximum number of recent tasks and registrations that are read."""
COMMITTED = (ChunkOutcome.PUBLISHED, ChunkOutcome.CARRIED_OVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """Status of a table.

    ``to_rewrite`` is the bytes of chunks worth compacting that are not quarantined; ``arrived`` and ``drained`` are the
    bytes registered and rewritten within ``RATE_WINDOW_MS``. ``unpublished`` counts the changes that readers do not see
    yet. ``stuck`` chunks are worth compacting and had no task for ``STUCK_MS``.
    """

    running: int = 0
    waiting: int = 0
    blocked: int = 0
    parked: int = 0
    chunks: int = 0
    unstable: int = 0
    deferred: int = 0
    quarantined: int = 0
    to_rewrite: int = 0
    arrived: int = 0
    drained: int = 0
    bad_files: int = 0
    stuck: int = 0
    unpublished: int = 0

    @property
    def has_work(self) -> bool:
        """Return whether anything is left to compact."""
        return bool(self.to_rewrite or self.running or self.waiting or self.blocked)

    @property
    def clears_in_ms(self) -> int | None:
        """Return the time until the backlog is rewritten at the rates of the last hour, None if it does not shrink."""
        net = self.drained - self.arrived
        if not self.to_rewrite:
            return 0
        return round(self.to_rewrite * RATE_WINDOW_MS / net) if net > 0 else None


def statuses(sources: Iterable[DataSource]) -> dict[int, TableStatus]:
    """Return the status of each table, by row id. Fixed number of queries."""
    rows = {source.id: source for source in sources}
    found: dict[int, dict[str, int]] = {id_: defaultdict(int) for id_ in rows}
    ids = list(rows)
    needed = TaskDependency.objects.filter(task=OuterRef("id"), needs__state=TaskState.OPEN)
    tasks = Task.objects.filter(source__in=ids, state=TaskState.OPEN).annotate(has_needs=Exists(needed))
    for row in _counted(tasks, "job__state", "has_needs"):
        known = {JobState.LEASED.value: "running", JobState.PARKED.value: "parked"}
        found[row["source"]][known.get(row["job__state"], "blocked" if row["has_needs"] else "waiting")] += row["count"]
    for row in _counted(Chunk.objects.filter(source__in=ids), "state"):
        found[row["source"]]["chunks"] += row["count"]
        found[row["source"]][row["state"]] += row["count"]
    todo = Chunk.objects.filter(source__in=ids, state__in=[ChunkStatus.UNSTABLE, ChunkStatus.DEFERRED])
    for row in todo.order_by().values("source", "is_quarantined").annotate(size=Sum("byte_count"), count=Count("id")):
        if row["is_quarantined"]:
            found[row["source"]]["quarantined"] += row["count"]
            found[row["source"]]["deferred"] -= row["count"]
        else:
            found[row["source"]]["to_rewrite"] += int(row["size"])
    for row in _counted(BadFile.objects.filter(source__in=ids, released_at_ms=None)):
        found[row["source"]]["bad_files"] = row["count"]
    for source_id, count in stuck_counts(ids).items():
        found[source_id]["stuck"] = count
    since_ms = dialect.clock_ms() - RATE_WINDOW_MS
    for source_id, size in _arrived(ids, since_ms).items():
        found[source_id]["arrived"] = size
    for source_id, size in _drained(ids, since_ms).items():
        found[source_id]["drained"] = size
    names = TableStatus.__dataclass_fields__
    return {
        id_: TableStatus(
            **{name: number for name, number in numbers.items() if name in names},
            unpublished=rows[id_].sequence - rows[id_].published,
        )
        for id_, numbers in found.items()
    }


def table_state(source: DataSource, now: TableStatus) -> StateLabel:
    """Return the state of a table: the first that applies."""
    if source.refusal:
        return StateLabel("refused", "bad", source.refusal)
    if source.is_paused:
        return StateLabel("paused", "warn")
    if source.publish_error:
        return StateLabel("not published", "bad", source.publish_error)
    if now.parked or now.quarantined or now.bad_files or now.stuck:
        return StateLabel("needs attention", "bad", "tasks, chunks or files are quarantined, or chunks are stuck")
    return StateLabel("compacting", "busy") if now.has_work else StateLabel("compacted", "good")


def stuck_counts(ids: Sequence[int] | None = None) -> Counter[int]:
    """Return the number of stuck chunks of these tables (None: of all), by row id of the table.

    A chunk that shares segments with others does not count while a task that owns one of these is open or has just
    ended.
    """
    until_ms = dialect.clock_ms() - STUCK_MS
    lately = TaskChunk.objects.filter(
        source=OuterRef("source"), start_ms=OuterRef("start_ms"), ended_at_ms__gt=until_ms
    )
    planned = Chunk.objects.filter(source__is_paused=False, analysed_at_ms__lte=until_ms)
    planned = planned.filter(WITHOUT_TASK, ~Exists(lately))
    if ids is not None:
        planned = planned.filter(source__in=ids)
    counts = Counter({row["source"]: row["count"] for row in _counted(planned.filter(analysis__shared=[]))})
    sharing = list(planned.exclude(analysis__shared=[]).values_list("source", "analysis__shared")[:SHARING_MAX])
    shared = {key for _, keys in sharing for key in keys}
    at_work = Task.objects.filter(Q(state=TaskState.OPEN) | Q(finished_at_ms__gt=until_ms))
    planned_in = TaskSegment.objects.filter(segment__in=shared, task__in=at_work)
    held = set(planned_in.values_list("segment_id", flat=True))
    counts.update(source_id for source_id, keys in sharing if held.isdisjoint(keys))
    return counts


def _counted(rows: Any, *names: str) -> Any:
    return rows.order_by().values("source", *names).annotate(count=Count("id"))


def _arrived(ids: Sequence[int], since_ms: int) -> dict[int, int]:
    """Return the bytes registered since ``since_ms``, by table, from the newest registrations.

    Registrations are ordered by time except for clock differences.
    """
    newest = Registration.objects.filter(source__in=ids).order_by("-id").values_list("source", "at_ms", "byte_count")
    return _summed((source, size) for source, at_ms, size in newest[:RECENT_MAX] if at_ms >= since_ms)


def _drained(ids: Sequence[int], since_ms: int) -> dict[int, int]:
    first = Task.objects.order_by("-id").values_list("id", flat=True)[RECENT_MAX : RECENT_MAX + 1].first() or 0
    done = TaskChunk.objects.filter(task__gt=first, source__in=ids, outcome__in=COMMITTED, ended_at_ms__gte=since_ms)
    return _summed(done.order_by().values_list("source", "byte_count"))


def _summed(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    sums: defaultdict[int, int] = defaultdict(int)
    for source_id, size in pairs:
        sums[source_id] += size
    return sums
