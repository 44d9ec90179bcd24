"""Reads of the schedule for operators: lists for the admin, sums for the front page.

Every result is bounded, whatever the backlog: workers and unfinished jobs are few by design (the queue limit), done
jobs are counted up to a limit. Rows of lists carry ``now_ms``, the command time at which they were read, so that ages
and remaining leases are shown without another query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from django.db.models import BigIntegerField, Count, F, OuterRef, Q, QuerySet, Subquery, Sum, Value
from django.db.models.functions import Coalesce

from engine.schedule.limits import ScopeKind
from engine.schedule.model import HOLDING_STATES, AttemptOutcome, JobState
from webadmin.base.database import dialect
from webadmin.schedule import command_log
from webadmin.schedule.models import Attempt, Command, Job, Limits, Worker
from webadmin.schedule.operation_models import LimitChange

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

DONE_COUNTED_MAX = 10_000
COMMANDS_SEARCHED_MAX = 2_000
"""How many commands after its token are searched for the command that ended an attempt."""
LAST_COMMANDS = 8
LAST_WORKERS = 8
SILENT_AFTER_LEASES = 2
"""A worker that has not polled for this many leases has lost its jobs."""


def command_now_ms() -> int:
    """Return the command time that a command would get now."""
    return command_log.read_time().now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCounts:
    """Jobs by state as operators see it. ``done`` stops at DONE_COUNTED_MAX; expired ones are among leased."""

    waiting: int
    blocked: int
    leased: int
    expired: int
    parked: int
    done: int
    held_sources: int
    held_bytes: int
    parked_sources: int

    def live(self) -> int:
        """Jobs that count towards the queue limit."""
        return self.waiting + self.blocked + self.leased


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOverview:
    """A summary of the schedule. ``now_ms`` is command time, ``wall_ms`` the database's clock."""

    now_ms: int
    wall_ms: int
    limits: Limits
    jobs: JobCounts
    workers: Sequence[WithAnnotations[Worker, WorkerColumns]]
    known_worker_count: int
    polling_worker_count: int
    commands: Sequence[Command]


def schedule_overview() -> ScheduleOverview:
    """Read the schedule's part of the front page."""
    time, limits = command_log.read_time(), Limits.objects.get()
    now_ms = time.now_ms
    polling = _is_polling(datetime.fromtimestamp(time.wall_ms / 1000, UTC), limits.lease_seconds)
    workers = Worker.objects.aggregate(known=Count("id"), polling=Count("id", filter=polling))
    return ScheduleOverview(
        now_ms=now_ms,
        wall_ms=time.wall_ms,
        limits=limits,
        jobs=job_counts(now_ms),
        workers=list(workers_for_list().order_by(F("last_poll_at").desc(nulls_last=True), "name")[:LAST_WORKERS]),
        known_worker_count=workers["known"],
        polling_worker_count=workers["polling"],
        commands=list(Command.objects.order_by("-index")[:LAST_COMMANDS]),
    )


def job_counts(now_ms: int) -> JobCounts:
    """Count jobs by state; done ones up to DONE_COUNTED_MAX."""
    held = Job.objects.filter(state__in=[state.value for state in HOLDING_STATES])
    by_state = {
        row["state"]: row
        for row in held.order_by()
        .values("state")
        .annotate(
            jobs=Count("id"),
            sources=Sum("source_count"),
            bytes=Sum("source_bytes"),
            expired=Count("id", filter=Q(lease_expires_ms__lt=now_ms)),
        )
    }
    jobs = {state: by_state[state.value]["jobs"] if state.value in by_state else 0 for state in HOLDING_STATES}
    done = Job.objects.filter(state=JobState.DONE.value).order_by()[:DONE_COUNTED_MAX].count()
    return JobCounts(
        waiting=jobs[JobState.WAITING],
        blocked=jobs[JobState.BLOCKED],
        leased=jobs[JobState.LEASED],
        expired=sum(row["expired"] for row in by_state.values()),
        parked=jobs[JobState.PARKED],
        done=done,
        held_sources=sum(int(row["sources"]) for row in by_state.values()),
        held_bytes=sum(int(row["bytes"]) for row in by_state.values()),
        parked_sources=int(by_state[JobState.PARKED.value]["sources"]) if jobs[JobState.PARKED] else 0,
    )


def jobs_for_list(now_ms: int) -> QuerySet[Job]:
    """Return jobs with their worker, without columns that only the detail page shows."""
    return (
        Job.objects.annotate(now_ms=Value(now_ms, BigIntegerField())).select_related("worker").defer("spec", "result")
    )


def polling_workers(workers: QuerySet[Worker], at: datetime) -> QuerySet[Worker]:
    """Narrow to the workers that polled recently and whose credential is not revoked."""
    lease_seconds = Limits.objects.values_list("lease_seconds", flat=True).get()
    return workers.filter(_is_polling(at, lease_seconds))


def _is_polling(at: datetime, lease_seconds: int) -> Q:
    seen_since = at - timedelta(seconds=lease_seconds * SILENT_AFTER_LEASES)
    return Q(last_poll_at__gte=seen_since, credential__revoked_at=None)


class WorkerColumns(TypedDict):
    """The columns that ``workers_for_list`` adds."""

    running: int
    lease_seconds: int
    wall_ms: int


def workers_for_list() -> QuerySet[WithAnnotations[Worker, WorkerColumns]]:
    """Return workers with the number of jobs they hold, the length of a lease and the database's clock."""
    held = Job.objects.filter(worker=OuterRef("pk"), state=JobState.LEASED.value).order_by().values("worker")
    return Worker.objects.select_related("credential").annotate(
        running=Coalesce(Subquery(held.annotate(jobs=Count("id")).values("jobs")), Value(0)),
        lease_seconds=Subquery(Limits.objects.values("lease_seconds")[:1]),
        wall_ms=Value(dialect.clock_ms(), output_field=BigIntegerField()),
    )


def jobs_of_worker(worker: Worker, now_ms: int, count: int) -> list[Job]:
    """Return the jobs that a worker holds, sorted by the end of the lease."""
    held = jobs_for_list(now_ms).filter(worker=worker, state=JobState.LEASED.value)
    return list(held.order_by("lease_expires_ms", "id")[:count])


def failing_jobs(jobs: QuerySet[Job], now_ms: int) -> QuerySet[Job]:
    """Narrow to jobs that are parked, have failed at least once, or whose lease has expired."""
    held = [state.value for state in HOLDING_STATES]
    failed = Q(state__in=held, failures__gt=0)
    return jobs.filter(Q(state=JobState.PARKED.value) | failed | Q(lease_expires_ms__lt=now_ms))


def attempts_of(job: Job) -> list[Attempt]:
    """Return the attempts of a job, newest first."""
    return list(Attempt.objects.filter(job=job).select_related("worker").order_by("-token")[:100])


def attempts_of_worker(worker: Worker, count: int) -> list[Attempt]:
    """Return a worker's last attempts."""
    return list(Attempt.objects.filter(worker=worker).select_related("job").defer("job__spec", "job__result")[:count])


def commands_of_job(job: Job, attempts: Sequence[Attempt]) -> list[Command]:
    """Return the commands that created, assigned, returned and finished a job, oldest first, if the log still has them.

    The command that returned it is not stored with the job: it is found by its time among the commands after the
    assignment.
    """
    indexes = {job.created_command_index, job.finished_command_index, *(attempt.token for attempt in attempts)}
    known = [index for index in indexes if index is not None]
    commands = {command.index: command for command in Command.objects.filter(index__in=known)}
    for attempt in attempts:
        if attempt.ended_at_ms is not None and attempt.outcome != AttemptOutcome.COMPLETED.value:
            commands |= {
                command.index: command for command in _commands_at(attempt.ended_at_ms, attempt.token, job.name)
            }
    return [commands[index] for index in sorted(commands)]


def _commands_at(ended_at_ms: int, token: int, job_name: str) -> list[Command]:
    behind = Command.objects.filter(index__gt=token, index__lte=token + COMMANDS_SEARCHED_MAX)
    at_its_end = behind.filter(command_time_ms=ended_at_ms, kind=Command.Kind.UPDATE_PLAN)[:20]
    return [command for command in at_its_end if job_name in _job_names(command)]


def parts_with_job(command: Command, job_name: str) -> list[str]:
    """Return the parts of a change set that contain a job: what the command did to it."""
    return [part for part, names in _jobs_by_part(command).items() if job_name in names]


def _job_names(command: Command) -> set[str]:
    return {name for names in _jobs_by_part(command).values() for name in names}


def _jobs_by_part(command: Command) -> dict[str, list[str]]:
    changes = command.change_set if isinstance(command.change_set, dict) else {}
    return {
        part: [entry["job"] for entry in value if isinstance(entry, dict) and "job" in entry]
        for part, value in changes.items()
        if isinstance(value, list)
    }


def jobs_in_command(command: Command) -> dict[str, Job]:
    """Return the jobs that a command names, by name; of several with one name the last."""
    names = sorted(_job_names(command))[:200]
    return {job.name: job for job in Job.objects.filter(name__in=names).defer("spec", "result").order_by("id")}


def change_counts(command: Command) -> dict[str, int]:
    """Return the number of entries in each part of a change set."""
    changes = command.change_set if isinstance(command.change_set, dict) else {}
    return {part: len(value) for part, value in changes.items() if isinstance(value, list) and value}


def with_now(rows: QuerySet[Any], now_ms: int) -> QuerySet[Any]:
    """Annotate each row with the command time at which it was read."""
    found: QuerySet[Any] = rows.annotate(now_ms=Value(now_ms, BigIntegerField()))
    return found


def still_in_force(rows: QuerySet[Any], now_ms: int) -> QuerySet[Any]:
    """Narrow limits or pauses to those in force at this command time."""
    rows = rows.filter(Q(valid_until_ms=None) | Q(valid_until_ms__gt=now_ms))
    return rows.filter(ended_at_ms=None) if hasattr(rows.model, "ended_at_ms") else rows.filter(is_superseded=False)


def global_limits_in_force(now_ms: int) -> dict[str, LimitChange]:
    """Return the global limits in force, by name, with who set them; limits that were never set are omitted."""
    rows = still_in_force(LimitChange.objects.filter(scope_kind=ScopeKind.GLOBAL, scope_value=""), now_ms)
    last = {row.name: row for row in rows.order_by("id")}
    return {name: row for name, row in last.items() if row.value is not None}
