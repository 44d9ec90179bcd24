"""Data types of the schedule: job states, the snapshot that a poll reads, and the change set that it produces.

All times are milliseconds of command time. ``id`` fields are opaque to the engine: they are keys of the caller's rows.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.core.fast_dataclasses import fast_init
from engine.protocol.messages import FailureReason, JobUpdate, Progress
from engine.schedule.fairness import LaneCharge, LaneView, TenantCharge, TenantView
from engine.schedule.pauses import PausedScope

FORMAT_VERSION = 3
"""Format version of change sets in the command log."""


class JobState(enum.StrEnum):
    """State of a job. Expired (the lease has ended) and faulty (no retry left) are derived, not stored."""

    WAITING = "waiting"  # planned, not leased
    BLOCKED = "blocked"  # planned, depends on other jobs
    LEASED = "leased"  # held by one worker under one token until the lease ends
    DONE = "done"  # the results have replaced the sources
    PARKED = "parked"  # out of the schedule with a reason; owns its blocks until an operator decides
    DISSOLVED = "dissolved"  # ended without a result: its blocks returned to their queue or to smaller jobs


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

    EVICTED = "evicted"  # it reached its failure limit
    DEFERRED = "deferred"  # an operator parked it
    QUARANTINED = "quarantined"  # its only block is damaged or missing


class AttemptOutcome(enum.StrEnum):
    """Outcome of an attempt: the run of a job under one token."""

    RUNNING = "running"  # not ended yet
    COMPLETED = "completed"  # the result was accepted
    RELEASED = "released"  # the worker returned the job without a failure
    FAILED = "failed"  # the worker returned the job with a failure reason
    REFUSED = "refused"  # the worker reported a result that the index rejected
    EXPIRED = "expired"  # the lease ended without a report
    REVOKED = "revoked"  # an operator revoked the lease


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleLimits:
    """Limits that an operator may change at run time. 0 means unlimited."""

    lease_ms: int = 15_000
    failures_max: int = 3
    queue_max: int = 10_000


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as the scheduler reads it.

    ``failures_max`` is the limit of the job or its tenant (None: the global limit). ``priority_ms`` sorts the jobs of a
    tenant (``engine.schedule.priority``).
    """

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
        """Return the sort key among the jobs of one tenant: lowest priority value first, then name (bytewise)."""
        return (self.priority_ms, self.name)

    def has_expired(self, now_ms: int) -> bool:
        """Return whether the lease has ended; the end itself still belongs to the lease."""
        return self.state is JobState.LEASED and now_ms > self.lease_expires_ms

    def is_exhausted(self, limits: ScheduleLimits) -> bool:
        """Return whether the job has reached its failure limit."""
        failures_max = limits.failures_max if self.failures_max is None else self.failures_max
        return 0 < failures_max <= self.failures


class PlannedWork(Protocol):
    """A job that a lane proposes; ``ready_at_ms`` is the time since which its sources could be merged."""

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
        """Return the size of its sources in bytes."""

    def source_count(self) -> int:
        """Return the number of its sources."""

    def to_json(self) -> dict[str, Any]:
        """Return its form in the command log."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQueue:
    """The jobs that a lane proposes for one of its ready queues, in order; they share no source.

    ``served_at_ms`` is the time at which a job was last planned from the queue (0: never). The queues of a tenant are
    served in rotation.
    """

    lane: str
    tenant: str
    level: int
    served_at_ms: int
    jobs: tuple[PlannedWork, ...]


class JobResult(Protocol):
    """The result that a worker reports for a job; its content is defined by the lane."""

    def to_log(self) -> list[dict[str, Any]]:
        """Return the command log's entry for each block written."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One update of a poll after validation of its content.

    ``token`` is None if this service did not issue it or issued it to another worker. ``result`` is set for a success
    with a valid result, ``refusal`` for a success with an invalid one.
    """

    update: JobUpdate
    token: int | None
    result: JobResult | None = None
    refusal: FailureReason | None = None


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSnapshot:
    """The input of one poll's decisions; its size is bounded by capacity and number of reports.

    ``reported`` holds the jobs that the reports name, ``assignable`` the first jobs that are waiting or expired,
    ``queues`` the proposals of the lanes, ``live_job_count`` the jobs that count against the queue limit.
    ``last_serial`` is the index of the last answer that the worker received, ``held`` the worker's leased jobs with
    tokens up to that index. ``lanes`` and ``tenants`` hold weights, virtual times and caps; one that is not listed has
    the default weight and virtual time 0. Jobs and queues that ``paused`` covers are not planned or assigned.
    """

    now_ms: int
    worker: str
    capacity: int
    limits: ScheduleLimits
    reports: tuple[Report, ...] = ()
    reported: dict[str, JobView] = field(default_factory=dict)
    last_serial: int = 0
    held: tuple[JobView, ...] = ()
    assignable: tuple[JobView, ...] = ()
    queues: tuple[PlannedQueue, ...] = ()
    live_job_count: int = 0
    lanes: tuple[LaneView, ...] = ()
    tenants: tuple[TenantView, ...] = ()
    paused: tuple[PausedScope, ...] = ()


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class RenewLease:
    """Renew the lease: the worker still runs the job."""

    job: JobView
    progress: Progress | None


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteJob:
    """Replace the job's sources with the worker's result."""

    job: JobView
    result: JobResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnJob:
    """End a run without a result: the job waits with ``failures``, or is parked with ``parked_reason``."""

    job: JobView
    outcome: AttemptOutcome
    failures: int
    reason: FailureReason | None = None
    parked_reason: str = ""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class AssignJob:
    """Lease the job to the polling worker under the token of this command; ``failures`` is the new count."""

    job: JobView
    failures: int


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class CreateJob:
    """Add a planned job to the schedule and lease it to the polling worker."""

    plan: PlannedWork


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSet:
    """The changes of one poll. Renewals need no command; all other changes are applied and logged as one command."""

    renewed: tuple[RenewLease, ...] = ()
    completed: tuple[CompleteJob, ...] = ()
    returned: tuple[ReturnJob, ...] = ()
    assigned: tuple[AssignJob, ...] = ()
    created: tuple[CreateJob, ...] = ()
    tenants: tuple[TenantCharge, ...] = ()
    lanes: tuple[LaneCharge, ...] = ()

    def changes_plan(self) -> bool:
        """Return whether applying the change set appends a command to the log."""
        return bool(self.completed or self.returned or self.assigned or self.created)

    def to_json(self) -> dict[str, Any]:
        """Return the change set as stored in the command log (``FORMAT_VERSION``)."""
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
