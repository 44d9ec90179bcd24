"""Cells and page sections of jobs, queues, workers and commands in the admin."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.utils import timezone
from django.utils.safestring import SafeString

from engine.schedule.model import AttemptOutcome, JobState
from webadmin.adminkit import formatting as show
from webadmin.adminkit.sections import Facts, Json, Section, Table
from webadmin.schedule import operator_queries as queries
from webadmin.schedule.models import Attempt, Command, Job, Worker
from webadmin.schedule.wall_times import WallTimes, wall_times

SEGMENT_TENANT = f"all{show.GAP}(segments)"
TONES = {
    JobState.WAITING: ("quiet", "planned, held by no worker"),
    JobState.BLOCKED: ("quiet", "planned, waits for other jobs"),
    JobState.LEASED: ("busy", "leased to one worker, with a fencing token, until the lease expires"),
    JobState.DONE: ("good", "its results have replaced its sources"),
    JobState.PARKED: ("bad", "not scheduled; keeps its blocks"),
    JobState.DISSOLVED: ("quiet", "its blocks returned to their queue or to smaller jobs"),
}
OUTCOME_TONES = {
    AttemptOutcome.RUNNING: "busy",
    AttemptOutcome.COMPLETED: "good",
    AttemptOutcome.RELEASED: "quiet",
    AttemptOutcome.FAILED: "bad",
    AttemptOutcome.REFUSED: "bad",
    AttemptOutcome.EXPIRED: "warn",
    AttemptOutcome.REVOKED: "quiet",
}


def state_badge(job: Job, now_ms: int) -> SafeString:
    """Return the badge of the state; an expired lease is shown as such, a parked job with its reason."""
    words = state_text(job, now_ms)
    if has_expired(job, now_ms):
        return show.badge("lease over", "warn", words)
    return show.badge(job.state, TONES[JobState(job.state)][0], words)


def state_text(job: Job, now_ms: int) -> str:
    """Return the meaning of the state for this job, or why it is parked."""
    if has_expired(job, now_ms):
        return "its worker stopped renewing; the next poll reassigns it and counts one more failure"
    return job.parked_reason or TONES[JobState(job.state)][1]


def state_with_reason(job: Job, now_ms: int) -> SafeString:
    """Return the state and, for a parked job, the reason."""
    badge = state_badge(job, now_ms)
    return show.note(badge, job.parked_reason) if job.parked_reason else badge


def has_expired(job: Job, now_ms: int) -> bool:
    """Return whether the job's lease has expired and the job was not reassigned yet."""
    return job.state == JobState.LEASED.value and job.lease_expires_ms is not None and now_ms > job.lease_expires_ms


def lease_left(job: Job, now_ms: int) -> SafeString | str:
    """Return how long the lease remains, in command time."""
    if job.lease_expires_ms is None:
        return show.NOTHING
    return show.hint(lease_left_text(job, now_ms), f"until {show.moment_text(job.lease_expires_ms)} command time")


def lease_left_text(job: Job, now_ms: int) -> str:
    """Return how long a leased job's lease remains, or since when it has expired."""
    left_ms = (job.lease_expires_ms or 0) - now_ms
    return f"{show.duration_text(left_ms)} left" if left_ms >= 0 else f"over since {show.duration_text(-left_ms)}"


def failures(job: Job) -> SafeString | str:
    """Return the number of failures, coloured if it is not 0."""
    return show.badge(str(job.failures), "warn", "runs that failed or whose lease expired") if job.failures else "0"


def progress(job: Job) -> SafeString | str:
    """Return the progress that the worker last reported."""
    shown = job.progress
    if job.state != JobState.LEASED.value or not isinstance(shown, dict):
        return show.NOTHING
    return show.progress_bar(int(shown.get("done", 0)), int(shown.get("total", 0)), str(shown.get("phase", "")))


def tenant_text(tenant: str) -> str:
    """Return the tenant of a job or queue; "" stands for segments, which contain all tenants."""
    return tenant or SEGMENT_TENANT


def job_sections(job: Job, now_ms: int) -> list[Section]:
    """Return the schedule's sections of a job's page; the lane adds sources and results."""
    attempts = queries.attempts_of(job)
    indexes = [job.created_command_index, job.token, job.finished_command_index or 0]
    walls = wall_times([*indexes, *(attempt.token for attempt in attempts)])
    return [
        _job_facts(job, now_ms, walls),
        _attempts(attempts, now_ms, walls),
        _commands(job, queries.commands_of_job(job, attempts)),
    ]


def _commands(job: Job, commands: Sequence[Command]) -> Table:
    return Table(
        title="Commands for this job",
        headers=("Index", "Time", "Actor", "Effect on the job"),
        rows=[
            (
                show.command_link(command.index),
                show.moment_age(command.wall_time, timezone.now()),
                command.actor,
                ", ".join(queries.parts_with_job(command, job.name)) or show.NOTHING,
            )
            for command in commands
        ],
        empty="The command log no longer contains them.",
    )


def job_data(job: Job) -> list[Section]:
    """Return the stored documents of a job."""
    result = [Json(title="Result as reported", data=job.result, folded=True)] if job.result is not None else []
    return [Json(title="Specification", data=job.spec, folded=True), *result]


def _job_facts(job: Job, now_ms: int, walls: WallTimes) -> Facts:
    run_ms = None
    if job.assigned_at_ms is not None:
        run_ms = (now_ms if job.finished_at_ms is None else job.finished_at_ms) - job.assigned_at_ms
    sources = f"{show.counted(job.source_count, 'block')}, {show.size_text(job.source_bytes)}"
    if moved := set(job.spec.get("source_shards", {}).values()):
        sources += f", of shards {', '.join(map(str, sorted(moved | {job.shard})))}"
    return Facts(
        title="The job",
        rows=[
            ("State", show.note(state_badge(job, now_ms), state_text(job, now_ms))),
            ("Worker", show.row_link(job.worker)),
            ("Lease", lease_left(job, now_ms)),
            ("Token", show.command_link(job.token) if job.token else show.NOTHING),
            ("Failures", failures(job)),
            ("Progress", progress(job)),
            ("Lane", job.lane),
            ("Tenant", tenant_text(job.tenant)),
            ("Shard, level", f"shard {job.shard}, level {job.level} → {job.level + 1}"),
            ("Sources", sources),
            ("Planned", _age(job.added_at_ms, job.created_command_index, walls)),
            ("Last assigned", _age(job.assigned_at_ms, job.token, walls)),
            ("Finished", _age(job.finished_at_ms, job.finished_command_index, walls)),
            ("Duration of last run", show.duration_text(run_ms) if job.finished_at_ms is not None else show.NOTHING),
        ],
    )


def _age(ms: int | None, command_index: int | None, walls: WallTimes) -> SafeString | str:
    return show.NOTHING if ms is None else show.age(walls.of(ms, command_index), walls.wall_ms)


def _attempts(attempts: Sequence[Attempt], now_ms: int, walls: WallTimes) -> Table:
    return Table(
        title="Attempts",
        headers=("Token", "Worker", "Assigned", "Ran for", "Outcome"),
        rows=[
            (
                show.command_link(attempt.token),
                show.row_link(attempt.worker),
                _age(attempt.assigned_at_ms, attempt.token, walls),
                _ran_for(attempt, now_ms),
                outcome(attempt),
            )
            for attempt in attempts
        ],
        empty="Not assigned yet.",
    )


def _ran_for(attempt: Attempt, now_ms: int) -> str:
    return show.duration_text((now_ms if attempt.ended_at_ms is None else attempt.ended_at_ms) - attempt.assigned_at_ms)


def outcome(attempt: Attempt) -> SafeString:
    """Return how an attempt ended, with the worker's or the service's reason."""
    badge = show.badge(attempt.outcome, OUTCOME_TONES[AttemptOutcome(attempt.outcome)])
    reason = reason_text(attempt.reason)
    return show.note(badge, reason) if reason else badge


def reason_text(reason: object) -> str:
    """Return a recorded failure reason as one line: error, message, and where in which object."""
    if not isinstance(reason, dict):
        return ""
    where = [str(reason[name]) for name in ("object", "section") if reason.get(name)]
    offset = reason.get("offset", -1)
    if isinstance(offset, int) and offset >= 0:
        where.append(f"offset {offset}")
    text = ": ".join(str(reason[name]) for name in ("error_class", "message") if reason.get(name))
    return f"{text} ({', '.join(where)})" if where else text


def command_table(title: str, commands: Sequence[Command]) -> Table:
    """Return commands as a table, in wall time: command time may have stopped in between."""
    now = timezone.now()
    return Table(
        title=title,
        headers=("Index", "Time", "Kind", "Actor", "Change"),
        rows=[
            (
                show.command_link(command.index),
                show.moment_age(command.wall_time, now),
                command.get_kind_display(),
                command.actor,
                change_text(command),
            )
            for command in commands
        ],
        empty="The command log no longer contains them.",
    )


def change_text(command: Command) -> str:
    """Return a change set as a short text: ``created 2, assigned 1``."""
    counts = queries.change_counts(command)
    if counts:
        return ", ".join(f"{part.replace('_', ' ')} {count}" for part, count in counts.items())
    changes = command.change_set if isinstance(command.change_set, dict) else {}
    plain = [f"{name.replace('_', ' ')} {value}" for name, value in changes.items() if isinstance(value, int | str)]
    return ", ".join(plain[:4]) or show.NOTHING


def worker_badge(worker: Worker, *, lease_seconds: int, now: datetime) -> SafeString:
    """Return whether a worker polls; a silent one has lost its leases or soon will."""
    if worker.credential.revoked_at is not None:
        return show.badge("revoked", "bad", "its credential was revoked")
    if worker.last_poll_at is None:
        return show.badge("new", "quiet", "has not polled yet")
    silent_seconds = (now - worker.last_poll_at).total_seconds()
    if silent_seconds > lease_seconds * queries.SILENT_AFTER_LEASES:
        return show.badge("silent", "warn", "has not polled for longer than two leases")
    return show.badge("polling", "good")


def holder(job: Job, now_ms: int) -> SafeString | str:
    """Return which worker holds a job, for how long, and under which token."""
    if job.worker is None:
        return show.NOTHING
    if job.state != JobState.LEASED.value:
        return show.note(_worker(job.worker), f"last token {job.token}".replace(" ", show.GAP))
    lease = f"{lease_left_text(job, now_ms)} · token {job.token}".replace(" ", show.GAP)
    return show.note(_worker(job.worker), lease)


def _worker(worker: Worker) -> SafeString | str:
    return show.row_link(worker, show.name(worker.name))
