"""The nouns of the schedule: job states, what a planner may see, and the change set a poll makes of it.

All times are milliseconds of command time. ``id`` fields are opaque to the engine: the keys of the caller's rows.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.core.quick_values import quickly_built
from engine.protocol.messages import FailureReason, JobUpdate, Progress
from engine.schedule.fairness import LaneCharge, LaneView, TenantCharge, TenantView
from engine.schedule.pauses import PausedScope

FORMAT_VERSION = 3
"""Of change sets in the log."""


class JobState(enum.StrEnum):
    """Where a job is. Expired (its lease is over) and faulty (no retry left) are derived, not stored."""

    WAITING = "waiting"  # planned, held by no worker
    BLOCKED = "blocked"  # planned, waits for other jobs
    LEASED = "leased"  # held by one worker under one token until its lease ends
    DONE = "done"  # its results have replaced its sources
    PARKED = "parked"  # out of the schedule with a reason; keeps its blocks until an operator decides
    DISSOLVED = "dissolved"  # given up: its blocks went back to their queue, or into smaller jobs


LIVE_STATES = (JobState.WAITING, JobState.BLOCKED, JobState.LEASED)
"""States that count against the queue limit."""

HOLDING_STATES = (*LIVE_STATES, JobState.PARKED)
"""States in which a job owns its source blocks."""

ALLOWED_MOVES: dict[JobState, frozenset[JobState]] = {
    JobState.WAITING: frozenset({JobState.LEASED, JobState.PARKED}),
    JobState.BLOCKED: frozenset({JobState.WAITING, JobState.PARKED}),
    JobState.LEASED: frozenset({JobState.LEASED, JobState.WAITING, JobState.DONE, JobState.PARKED}),
    JobState.DONE: frozenset(),
    JobState.PARKED: frozenset({JobState.WAITING, JobState.DISSOLVED}),
    JobState.DISSOLVED: frozenset(),
}


class ParkedKind(enum.StrEnum):
    """Why a job is parked."""

    EVICTED = "evicted"  # it failed too often
    DEFERRED = "deferred"  # an operator set it aside
    QUARANTINED = "quarantined"  # its one block is damaged or missing


class AttemptOutcome(enum.StrEnum):
    """How a run of a job under one token ended."""

    RUNNING = "running"  # not ended yet
    COMPLETED = "completed"  # its result was accepted
    RELEASED = "released"  # the worker gave it back without blaming it
    FAILED = "failed"  # the worker gave it back and said why
    REFUSED = "refused"  # it reported a result that the index could not accept
    EXPIRED = "expired"  # the lease ended without a word
    REVOKED = "revoked"  # an operator took the job away


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleLimits:
    """What an operator may change at run time. 0 means without limit."""

    lease_ms: int = 15_000
    failures_max: int = 3
    queue_max: int = 10_000


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as the scheduler sees it. ``failures_max`` is the limit of its own or of its tenant (None: the global one);
    ``priority_ms`` its place among the jobs of its tenant (``engine.schedule.priority``)."""

    id: int
    name: str
    lane: str
    level: int
    state: JobState
    tenant: str = ""
    token: int = 0
    worker: str = ""
    lease_expires_ms: int = 0
    failures: int = 0
    failures_max: int | None = None
    added_at_ms: int = 0
    priority_ms: int = 0
    size_bytes: int = 0

    def order(self) -> tuple[int, str]:
        """Sort key among the jobs of one tenant: the lower priority value first, then by name (bytewise)."""
        return (self.priority_ms, self.name)

    def has_expired(self, now_ms: int) -> bool:
        """Say whether the lease is over; at the very moment of its end it still holds."""
        return self.state is JobState.LEASED and now_ms > self.lease_expires_ms

    def is_exhausted(self, limits: ScheduleLimits) -> bool:
        """Say whether one more failure takes the job out of the schedule."""
        failures_max = limits.failures_max if self.failures_max is None else self.failures_max
        return 0 < failures_max <= self.failures


class PlannedWork(Protocol):
    """A job that a lane would make of what is ready, and since when that could have been merged."""

    @property
    def name(self) -> str: ...
    @property
    def lane(self) -> str: ...
    @property
    def tenant(self) -> str: ...
    @property
    def shard(self) -> int: ...
    @property
    def level(self) -> int: ...
    @property
    def ready_at_ms(self) -> int: ...

    def size_bytes(self) -> int:
        """Return the bytes of its sources."""

    def source_count(self) -> int:
        """Return the number of its sources."""

    def to_json(self) -> dict[str, Any]:
        """Return what the command log keeps of it."""


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQueue:
    """The jobs that a lane would make of one of its ready queues now, in order; they share no source.

    ``served_at_ms`` is when a job was last made of the queue (0: never): queues of a tenant take turns.
    """

    lane: str
    tenant: str
    level: int
    served_at_ms: int
    jobs: tuple[PlannedWork, ...]


class JobResult(Protocol):
    """What a worker made of a job; what is in it is the lane's affair."""

    def to_log(self) -> list[dict[str, Any]]:
        """Return what the command log keeps of each block that was written."""


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One update of a poll, as far as it could be checked before: ``token`` is None if it was not ours or is not
    this worker's; ``result`` is set for a success whose content fits, ``refusal`` for one whose content does not."""

    update: JobUpdate
    token: int | None
    result: JobResult | None = None
    refusal: FailureReason | None = None


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSnapshot:
    """All that one poll's decisions rest on; its size is bounded by capacity and number of reports.

    ``reported`` are the jobs that the reports name, ``assignable`` the first jobs that wait or whose lease is over,
    ``queues`` what the lanes would make of their ready queues, ``live_job_count`` the jobs against the queue limit.
    ``heard`` is what the request says it heard last, ``held`` the worker's leased jobs with tokens up to that.
    ``lanes`` and ``tenants`` say who may have how much; who is not in them has the weight of everybody and has paid
    nothing yet. What ``paused`` covers stays where it is.
    """

    now_ms: int
    worker: str
    capacity: int
    limits: ScheduleLimits
    reports: tuple[Report, ...] = ()
    reported: dict[str, JobView] = field(default_factory=dict)
    heard: int = 0
    held: tuple[JobView, ...] = ()
    assignable: tuple[JobView, ...] = ()
    queues: tuple[PlannedQueue, ...] = ()
    live_job_count: int = 0
    lanes: tuple[LaneView, ...] = ()
    tenants: tuple[TenantView, ...] = ()
    paused: tuple[PausedScope, ...] = ()


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class RenewLease:
    """The worker still runs the job."""

    job: JobView
    progress: Progress | None


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteJob:
    """The worker's result replaces the job's sources."""

    job: JobView
    result: JobResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnJob:
    """The job's run ended without a result: it waits again with ``failures``, or is parked with ``parked_reason``."""

    job: JobView
    outcome: AttemptOutcome
    failures: int
    reason: FailureReason | None = None
    parked_reason: str = ""


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class AssignJob:
    """The job goes to the polling worker under the token of this command; ``failures`` is the new count."""

    job: JobView
    failures: int


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class CreateJob:
    """A planned job enters the schedule and goes to the polling worker at once."""

    plan: PlannedWork


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSet:
    """What one poll changes. Renewals need no command; everything else is applied and logged as one."""

    renewed: tuple[RenewLease, ...] = ()
    completed: tuple[CompleteJob, ...] = ()
    returned: tuple[ReturnJob, ...] = ()
    assigned: tuple[AssignJob, ...] = ()
    created: tuple[CreateJob, ...] = ()
    tenants: tuple[TenantCharge, ...] = ()
    lanes: tuple[LaneCharge, ...] = ()

    def changes_plan(self) -> bool:
        """Say whether applying this needs the head of the log."""
        return bool(self.completed or self.returned or self.assigned or self.created)

    def to_json(self) -> dict[str, Any]:
        """Return the literal change set as it stands in the command log (``FORMAT_VERSION``)."""
        return {
            "completed": [
                {"job": c.job.name, "token": c.job.token, "results": c.result.to_log()} for c in self.completed
            ],
            "returned": [
                {
                    "job": r.job.name,
                    "token": r.job.token,
                    "outcome": r.outcome.value,
                    "failures": r.failures,
                    "parked_reason": r.parked_reason,
                }
                for r in self.returned
            ],
            "assigned": [
                {"job": a.job.name, "replaces_token": a.job.token, "failures": a.failures} for a in self.assigned
            ],
            "created": [c.plan.to_json() for c in self.created],
            "tenants": [{"lane": t.lane, "tenant": t.tenant, "virtual_time": t.virtual_time} for t in self.tenants],
            "lanes": [
                {
                    "lane": lane.lane,
                    "tenant_time": lane.tenant_time,
                    "virtual_time": lane.virtual_time,
                    "started_time": lane.started_time,
                }
                for lane in self.lanes
            ],
        }
