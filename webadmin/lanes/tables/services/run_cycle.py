"""One controller cycle of a table: read the changes, plan, and write all decisions in one transaction.

If the table changed between read and write, nothing is written and the cycle is repeated: concurrent controllers have
the same effect as one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError
from django.db.models import Exists, F, OuterRef, Q

from engine.lanes.tables.jobs import KIND
from engine.lanes.tables.plan.cycle import run_cycle
from engine.lanes.tables.plan.model import PRIORITY_UNIT, Action, CycleDecisions, PlannedTask, StoredChunk
from engine.schedule.errors import SnapshotRefused
from engine.schedule.limits import LimitName
from engine.schedule.model import LIVE_STATES, JobState
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.lanes.tables.column_sizes import REASON_MAX
from webadmin.lanes.tables.cycle_view import CycleView, analysis_json, read_cycle
from webadmin.lanes.tables.errors import TableRefused
from webadmin.lanes.tables.models import Chunk, ChunkOverride, DataSource
from webadmin.lanes.tables.services.admit_tasks import start_tasks, within_budget
from webadmin.lanes.tables.services.end_tasks import end_tasks
from webadmin.lanes.tables.states import ChunkOverrideKind, ChunkStatus, TaskState
from webadmin.lanes.tables.status import WITHOUT_TASK
from webadmin.lanes.tables.task_models import Task, TaskChunk, TaskDependency, TaskSegment
from webadmin.schedule.command_log import read_time
from webadmin.schedule.errors import StaleSnapshot
from webadmin.schedule.models import Job, LogHead
from webadmin.schedule.polls.fair_shares import intern_shares
from webadmin.schedule.queries import effective_limits, limits_now
from webadmin.schedule.services.operation import Operation, operation, room_for

log = logging.getLogger(__name__)

ACTOR = "control:tables"
ATTEMPTS_MAX = 5
"""Maximum number of attempts of a cycle when the table changes concurrently."""
GONE_WHY = "what it was planned on has changed"


@dataclass(slots=True)
class CycleReport:
    """Result of cycles: chunks analysed, tasks created, started, ended and shed, and why nothing was planned."""

    analysed: int = 0
    created: list[str] = field(default_factory=list)
    started: int = 0
    ended: int = 0
    shed: int = 0
    readmitted: int = 0
    refusal: str = ""
    is_rest: bool = False


def due_tables(now_ms: int, count: int) -> list[DataSource]:
    """Return tables that need a cycle, the longest unvisited first.

    These are tables that changed, have open tasks or chunks worth compacting without a task, or whose state changes
    with time.
    """
    at_work = Task.objects.filter(state=TaskState.OPEN).order_by().values("source_id").distinct()
    left = Chunk.objects.filter(WITHOUT_TASK, source=OuterRef("id"))
    due = Q(is_dirty=True) | Q(recheck_ms__lte=now_ms) | Q(id__in=at_work) | Exists(left)
    return list(DataSource.objects.filter(due, is_paused=False).order_by("analysed_at_ms", "id")[:count])


def run_source_cycle(source: DataSource, *, context: ActionContext | None = None) -> CycleReport:
    """Run one cycle of a table. Raises StaleSnapshot if concurrent changes exceed ``ATTEMPTS_MAX`` attempts."""
    context = context or ActionContext(actor=ACTOR, why="what changed in the timeline")
    intern_shares([(KIND, source.tenant)])
    for _ in range(ATTEMPTS_MAX):
        try:
            return _turn(source, context)
        except (StaleSnapshot, IntegrityError) as error:  # a concurrent controller, or a job has ended
            log.info("timeline_planned_again table=%s reason=%s", source, error)
    raise StaleSnapshot(f"{source} changed {ATTEMPTS_MAX} times during a cycle")


def _turn(source: DataSource, context: ActionContext) -> CycleReport:
    try:
        view = read_cycle(source, room=_room())
        decisions = run_cycle(view.snapshot)
        refusal = decisions.refusals[0].reason if decisions.refusals else ""
    except (TableRefused, SnapshotRefused) as error:
        refusal = str(error)
        decisions, view = CycleDecisions(), None
    if view is None or refusal:
        _refuse(source, refusal)
        return CycleReport(refusal=refusal)
    if context.is_dry_run:
        return _report(decisions, view)
    return _Applied(source, view, decisions, context).run()


def _refuse(source: DataSource, why: str) -> None:
    """Store why nothing is planned; the next change of the table triggers another cycle."""
    DataSource.objects.filter(id=source.id).update(
        refusal=why[:REASON_MAX], is_dirty=False, analysed_at_ms=dialect.clock_ms()
    )


def _room() -> int:
    """Return the number of jobs of tables that still fit on the schedule."""
    time = read_time()
    now_ms = time.now_ms
    places = [room_for(LogHead.objects.values_list("live_job_count", flat=True).get(), time)]
    if own := effective_limits(now_ms).value(LimitName.QUEUE_MAX, 0, lane=KIND):
        places.append(own - Job.objects.filter(lane=KIND, state__in=[one.value for one in LIVE_STATES]).count())
    return max(0, min(places, default=1 << 31))


def _report(decisions: CycleDecisions, view: CycleView) -> CycleReport:
    return CycleReport(
        analysed=len(decisions.analysed),
        created=[task.name for task in decisions.created],
        started=len(decisions.started),
        ended=len(decisions.dissolved) + len(decisions.cancelled),
        shed=len(decisions.shed),
        readmitted=len(decisions.readmitted),
        is_rest=view.is_rest,
    )


class _Applied:
    """The decisions of a cycle while they are written."""

    def __init__(self, source: DataSource, view: CycleView, decisions: CycleDecisions, context: ActionContext) -> None:
        self.source = source
        self.view = view
        self.decisions = decisions
        self.context = context
        self.now_ms = view.snapshot.now_ms
        [self.source_view] = view.snapshot.sources
        self.tasks = dict(view.tasks)
        self.started = within_budget(decisions.started, self._sizes(), view.budget_left)

    def run(self) -> CycleReport:
        with operation() as run:
            self._lock_source()
            if self._changes_jobs():
                detail = {"table": str(self.source), "created": [self._entry(task) for task in self.decisions.created]}
                run.write("plan_timeline", self.context, target=str(self.source), detail=detail | self._ended())
                self._end(run)
                self._create(run)
                self._raise()
                start_tasks(run, self.tasks, self.started, self.decisions.passed_over, now_ms=self.now_ms)
            self._write_rows()
            self._end_orders()
        report = _report(self.decisions, self.view)
        report.started = len(self.started)
        if self._changes_jobs():
            log.info(
                "timeline_planned table=%s analysed=%d created=%d started=%d ended=%d put_off=%d",
                self.source,
                *(report.analysed, len(report.created), report.started, report.ended, report.shed),
            )
        return report

    def _lock_source(self) -> None:
        """Lock the table. Raises StaleSnapshot on concurrent changes other than registrations."""
        mine = DataSource.objects.filter(id=self.source.id, revision=self.view.revision)
        again = [row.recheck_ms for row in self.decisions.rows if row.recheck_ms is not None]
        later = Chunk.objects.filter(source=self.source, recheck_ms__gt=self.now_ms).order_by("recheck_ms")
        again += [ms for ms in later.values_list("recheck_ms", flat=True)[:1] if ms is not None]
        if not mine.update(
            revision=F("revision") + 1,
            refusal="",
            is_dirty=self.view.is_rest,
            analysed_at_ms=self.now_ms,
            recheck_ms=min(again, default=None),
        ):
            raise StaleSnapshot("another revision was taken, or a job has ended")

    def _changes_jobs(self) -> bool:
        decisions = self.decisions
        return bool(
            decisions.created
            or decisions.dissolved
            or decisions.cancelled
            or decisions.shed
            or decisions.raised
            or self.started
        )

    def _entry(self, task: PlannedTask) -> dict[str, Any]:
        """Return the log entry of a job."""
        return {
            "job": self._job_name(task),
            "lane": KIND,
            "tenant": self.source.tenant,
            "shard": 0,
            "level": 0,
            "sources": list(task.segment_keys),
            "is_assigned": False,
        }

    def _ended(self) -> dict[str, Any]:
        decisions = self.decisions
        return {
            "jobs": [self._job_name(task) for task in decisions.created],
            "ended": [self._named(name) for name, _ in (*decisions.dissolved, *decisions.cancelled)],
            "put_off": [self._named(name) for name in decisions.shed],
            "started": [self._named(name) for name in self.started],
        }

    def _named(self, task: str) -> str:
        """Return the name of a task's job."""
        return f"{task}-D{self.source.id}"

    def _job_name(self, task: PlannedTask) -> str:
        return self._named(task.name)

    def _sizes(self) -> dict[str, int]:
        sizes = {name: task.byte_count for name, task in self.tasks.items()}
        return sizes | {task.name: sum(chunk.bytes for chunk in task.chunks) for task in self.decisions.created}

    def _end(self, run: Operation) -> None:
        for name, why in (*self.decisions.dissolved, *self.decisions.cancelled):
            end_tasks(run, [self.tasks[name]], TaskState.ENDED, because=why or GONE_WHY)
        if shed := [self.tasks[name] for name in self.decisions.shed]:
            end_tasks(run, shed, TaskState.SHED, because="more urgent work fills the queue")

    def _create(self, run: Operation) -> None:
        """Create tasks with their chunks and jobs; jobs are blocked until they are admitted."""
        planned = self.decisions.created
        if not planned:
            return
        memory = limits_now(run.time.now_ms).task_memory_bytes
        jobs = [self._job(task, run, memory) for task in planned]
        Job.objects.bulk_create(jobs)
        run.live_jobs += len(jobs)
        rows = [self._row(task, job, run.index) for task, job in zip(planned, jobs, strict=True)]
        Task.objects.bulk_create(rows)
        self.tasks |= {row.name: row for row in rows}
        pairs = list(zip(planned, rows, strict=True))
        TaskChunk.objects.bulk_create(
            TaskChunk(
                task=row,
                source=self.source,
                start_ms=chunk.start_ms,
                end_ms=chunk.end_ms,
                digest=chunk.digest,
                segment_count=chunk.segments,
                byte_count=chunk.bytes,
                keys=list(chunk.keys),
                shared=list(chunk.shared),
            )
            for task, row in pairs
            for chunk in task.chunks
        )
        TaskSegment.objects.bulk_create(
            (TaskSegment(task=row, segment_id=key) for task, row in pairs for key in task.segment_keys),
            batch_size=5000,
        )
        TaskDependency.objects.bulk_create(
            TaskDependency(task=row, needs=self.tasks[name])
            for task, row in pairs
            for name in task.deps
            if name in self.tasks
        )

    def _job(self, task: PlannedTask, run: Operation, memory: int) -> Job:
        return Job(
            name=self._job_name(task),
            lane=KIND,
            tenant=self.source.tenant,
            shard=0,
            level=0,
            state=JobState.BLOCKED,
            added_at_ms=run.time.now_ms,
            priority_ms=run.time.now_ms,
            created_command_index=run.index,
            source_count=len(task.segment_keys),
            source_bytes=sum(chunk.bytes for chunk in task.chunks),
            spec={
                "table": self.source.name,
                "start_ms": task.start_ms,
                "end_ms": task.end_ms,
                "task_memory_bytes": memory,
            },
        )

    def _row(self, task: PlannedTask, job: Job, index: int) -> Task:
        policy = self.source_view.policy
        return Task(
            source=self.source,
            job=job,
            name=task.name,
            start_ms=task.start_ms,
            end_ms=task.end_ms,
            chunk_count=len(task.chunks),
            segment_count=len(task.segment_keys),
            byte_count=sum(chunk.bytes for chunk in task.chunks),
            cost=task.cost,
            expected_outputs=sum(chunk.out for chunk in task.chunks),
            priority=task.priority,
            colour=task.colour,
            is_over_limit=task.is_over_limit,
            is_ordered=any(chunk.start_ms in self.source_view.urgent for chunk in task.chunks),
            cause=task.reason[:REASON_MAX],
            shared=sorted({key for chunk in task.chunks for key in (*chunk.shared, *chunk.shared_tombstones)}),
            grid=policy.granularity.fingerprint(),
            fingerprint=policy.fingerprint(),
            command_index=index,
            created_at_ms=self.now_ms,
        )

    def _raise(self) -> None:
        """Move tasks that an operator requested to run now before all other waiting tasks."""
        raised = [self.tasks[name] for name in self.decisions.raised]
        for task in raised:
            task.priority = PRIORITY_UNIT
        Task.objects.filter(id__in=[task.id for task in raised]).update(priority=PRIORITY_UNIT, is_ordered=True)

    def _write_rows(self) -> None:
        """Write the analysis of chunks. Chunks that changed after the read stay marked as changed."""
        rows = [self._chunk(row) for row in self.decisions.rows]
        if rows:
            names = [field.name for field in Chunk._meta.fields if field.name in _WRITTEN]
            Chunk.objects.bulk_update([row for row in rows if row.id], names, batch_size=500)
            Chunk.objects.bulk_create([row for row in rows if not row.id], batch_size=500)
        gone = [start for _, start in self.decisions.removed]
        Chunk.objects.filter(source=self.source, start_ms__in=gone, is_dirty=False).delete()
        seen = [(chunk.id, chunk.changes) for start, chunk in self.view.chunks.items() if start in self.view.examined]
        dialect.update_rows(Chunk, ("id", "changes"), (), seen, to={"is_dirty": False}) if seen else None
        if Chunk.objects.filter(source=self.source, is_dirty=True).exists():
            DataSource.objects.filter(id=self.source.id).update(is_dirty=True)

    def _chunk(self, row: StoredChunk) -> Chunk:
        """Return the new row of a chunk."""
        planned, before = row.chunk, self.view.chunks.get(row.chunk.start_ms)
        is_analysed = (row.source, planned.start_ms) in self._analysed()
        chunk = before or Chunk(source=self.source, start_ms=planned.start_ms)
        chunk.end_ms = planned.end_ms
        chunk.state = ChunkStatus(row.state.value)
        chunk.fingerprint = row.fp
        chunk.version = planned.version
        chunk.segment_count = planned.count
        chunk.byte_count = planned.bytes
        chunk.largest_bytes = planned.largest_bytes
        chunk.digest = planned.digest
        chunk.priority = planned.priority
        chunk.cost = planned.cost
        chunk.analysis = analysis_json(planned)
        chunk.reason = row.reason[:REASON_MAX]
        chunk.note = planned.reason[:REASON_MAX] if planned.action is Action.NEUTRAL else ""
        chunk.task = self.tasks.get(row.task) if row.task else None
        chunk.outputs = list(row.outputs)
        chunk.outputs_fingerprint = row.outputs_fp
        chunk.failures = row.failures
        chunk.is_quarantined = bool(row.quarantined)
        chunk.quarantine_reason = row.quarantined[:REASON_MAX]
        chunk.recheck_ms = row.recheck_ms
        chunk.analyses += is_analysed
        if is_analysed:
            chunk.analysed_at_ms = self.now_ms
        return chunk

    def _analysed(self) -> set[tuple[str, int]]:
        return set(self.decisions.analysed)

    def _end_orders(self) -> None:
        """End "compact now" actions whose chunks have nothing left to compact."""
        if not self.source_view.urgent:
            return
        overrides = ChunkOverride.objects.filter(source=self.source, kind=ChunkOverrideKind.NOW, ended_at_ms=None)
        for override in overrides:
            inside = Chunk.objects.filter(
                source=self.source, start_ms__lt=override.end_ms, end_ms__gt=override.start_ms
            )
            if not inside.filter(Q(state__in=[ChunkStatus.UNSTABLE, ChunkStatus.DEFERRED]) | Q(is_dirty=True)).exists():
                ChunkOverride.objects.filter(id=override.id).update(
                    ended_at_ms=self.now_ms, ended_because="nothing in them is worth compacting any more"
                )


_WRITTEN = {
    *("end_ms", "state", "fingerprint", "version", "segment_count", "byte_count", "largest_bytes", "digest"),
    *("priority", "cost", "analysis", "reason", "note", "task", "outputs", "outputs_fingerprint", "failures"),
    *("is_quarantined", "quarantine_reason", "recheck_ms", "analyses", "analysed_at_ms"),
}
