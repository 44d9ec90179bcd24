"""The interface between the schedule and its lanes, the kinds of work.

The schedule (``poll``, ``apply_change_set``, ``operation``) checks tokens, moves jobs and writes the log. A lane plans
jobs, specifies them for workers, validates results, and replaces sources by results. An app registers its lane when
Django starts; the schedule names none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from django.db.models import Q, QuerySet

from engine.core.errors import LithifyError
from engine.protocol.messages import FailureReason
from engine.schedule.fairness import LaneView, TenantView
from engine.schedule.model import JobResult, PlannedQueue, PlannedWork
from engine.schedule.pauses import PausedScope
from webadmin.adminkit.overview import LaneOverview
from webadmin.schedule.lane_flow import LaneFlow
from webadmin.schedule.models import Job, Limits
from webadmin.schedule.polls.tenant_shares import CappedTenants, TenantKey

if TYPE_CHECKING:
    from engine.schedule.explain import Explanation
    from engine.schedule.limits import Scope
    from webadmin.adminkit.sections import Section
    from webadmin.base.actions.action import ActionContext
    from webadmin.schedule.services.operation import Operation, OperationOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A job whose worker reports success under the current token, with the unvalidated result."""

    job: Job
    result: dict[str, Any] | None


class Accepted(NamedTuple):
    """A validated result, and the data that the lane needs to replace the sources by it."""

    result: JobResult
    swap: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapMoment:
    """The command that completes jobs, and its time; replaced objects may be deleted at ``eligible_at_ms``."""

    command_index: int
    command_time_ms: int
    eligible_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The polling worker, all workers, and the command time of a poll; ``lease_ms`` is the length of a lease."""

    worker: str
    workers: frozenset[str]
    now_ms: int
    lease_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The number of jobs a poll wants planned (``job_max``), its command time, and what is excluded.

    ``wall_ms`` is wall time; ``capped`` are tenants at or near their caps.
    """

    job_max: int
    now_ms: int
    wall_ms: int
    paused: tuple[PausedScope, ...]
    capped: CappedTenants


Sample = tuple[tuple[str, ...], float]
"""Label values and value."""


class LanePlans(ABC):
    """A poll's snapshot of a lane's ready queues. Nothing is locked: ``LaneWrite`` checks again."""

    @abstractmethod
    def tenants(self) -> set[TenantKey]:
        """Return the tenants whose queues are ready."""

    @abstractmethod
    def plan(self, lanes: Sequence[LaneView], tenants: Sequence[TenantView]) -> tuple[PlannedQueue, ...]:
        """Return the jobs to be planned from the queues that are next by these shares."""

    @abstractmethod
    def settle(self) -> bool:
        """Write corrections that concern only the reads of polls; return whether to read again."""


class LaneWrite:
    """The writes of a lane in the transaction of one command, except for the rows of jobs.

    The sequence is ``take_sources``, ``check_sources``, ``swap``, ``finish``; all but the first under the head. This
    class is for lanes that only replace sources.
    """

    def __init__(self, lane: Lane) -> None:
        self.lane = lane

    def take_sources(self, planned: Sequence[tuple[int, PlannedWork]]) -> None:
        """Assign their sources to the planned jobs, each given with its row id."""
        assert not planned, "a lane whose jobs are planned by polls has a LaneWrite of its own"

    def check_sources(self) -> None:
        """Raise StaleSnapshot unless all sources were still there."""

    def job_spec(self, plan: PlannedWork) -> dict[str, Any]:
        """Return the specification that is stored in the row of a planned job, as JSON."""
        raise NotImplementedError(f"the lane {self.lane.name} plans no jobs in polls")

    def swap(self, swaps: Sequence[Any], prepared: Any, moment: SwapMoment) -> None:
        """Replace sources by results. Raises SourcesChanged."""
        self.lane.swap(swaps, prepared, moment)

    def finish(self, now_ms: int) -> None:
        """Update derived data at the end of the transaction; ``now_ms`` is command time."""


class Waiting(NamedTuple):
    """Sources of a lane that wait to be planned: ``count`` objects called ``unit`` in the tenant's ``name``.

    ``words`` is when they will be done; ``size_bytes`` None: unknown.
    """

    tenant: str
    name: str
    count: int  # type: ignore[assignment]  # hides tuple.count
    unit: str
    size_bytes: int | None
    words: str
    is_paused: bool = False


class QueuedSources(NamedTuple):
    """The number of sources in queues that polls plan from, and the number of them in ready queues."""

    count: int = 0  # type: ignore[assignment]  # hides tuple.count
    due: int = 0


class LaneBlocker(NamedTuple):
    """Something in a lane that is blocked until an operator acts; ``code`` is stable, ``text`` names no tenant."""

    code: str
    text: str
    remedy: str


class Lane(ABC):
    """A kind of work. Each method takes all jobs of the lane at once and costs a fixed number of statements."""

    name: ClassVar[str]
    ready_at_sql: ClassVar[str] = ""
    """A query for the command time since when ``read_plans`` finds work, NULL if there is none.

    It is part of the first statement of each poll. "" if the lane plans nothing in polls.
    """
    plans_ahead: ClassVar[bool] = False
    """Whether its jobs are created before a worker polls, so that many of them may wait."""
    keeps_wall_time: ClassVar[bool] = True
    """Whether the rows of its sources carry wall time; those of the index carry command time."""
    ends_early: ClassVar[bool] = False
    """Whether the end of its jobs may become visible shortly before it is durable.

    A reader that acts on it outside of the database must commit something of its own or call ``wait_for_disk`` first.
    """
    flow: ClassVar[LaneFlow] = LaneFlow()
    """How its sources and jobs are counted in the command log."""

    @abstractmethod
    def specs(self, jobs: Sequence[Job], fence: int) -> dict[int, dict[str, Any]]:
        """Return, by row id, the specifications for workers of jobs just assigned under this token, as JSON."""

    @abstractmethod
    def check(self, finished: Sequence[Finished]) -> list[Accepted | FailureReason]:
        """Validate results against their jobs. Nothing is locked: ``swap`` checks again what it needs."""

    def prepare(self, swaps: Sequence[Any]) -> Any:
        """Insert rows that the swaps refer to, before the head is taken; the return value is passed to ``swap``."""
        return None

    def swap(self, swaps: Sequence[Any], prepared: Any, moment: SwapMoment) -> None:
        """Replace sources by results, inside the transaction that completes their jobs and under the head.

        Raises SourcesChanged, which rolls the transaction back, unless every source is still live and owned by the job.
        For lanes without a LaneWrite of their own.
        """
        raise NotImplementedError(f"the lane {self.name} replaces no sources")

    def swapped(self, swaps: Sequence[Any]) -> None:  # noqa: B027
        """Run the lane's work after the commit of swaps. It must not fail: the poll is answered right after."""

    @abstractmethod
    def kept(self, result: JobResult) -> dict[str, Any]:
        """Return the result that is stored in the row of a finished job, as JSON."""

    def read_plans(self, request: PlanRequest) -> LanePlans | None:
        """Read the ready queues from which up to ``job_max`` jobs may be planned; None if there are none."""
        return None

    def open_write(self, plans: LanePlans | None = None, *, limits: Limits | None = None) -> LaneWrite:
        """Return the lane's writes of one command. ``plans`` are those from which the command's jobs are planned."""
        return LaneWrite(self)

    def has_waiting_sources(self) -> bool:
        """Return whether sources wait that only the passing of command time turns into a job."""
        return False

    def offered(self, jobs: Sequence[Job], offer: Offer) -> list[Job]:
        """Return the waiting jobs that the worker may take now; only for lanes that plan ahead."""
        return list(jobs)

    def explain(self, name: str) -> list[Explanation]:
        """Explain the lane's objects of this name, such as the id of a block or the path of a file."""
        return []

    def has_tenant(self, name: str) -> bool:
        """Return whether the lane has a tenant of this name, beside those of the index."""
        return False

    def tenant_sections(self, tenant: str) -> list[Section]:
        """Return what the lane shows on a tenant's page; nothing of a tenant that it does not have."""
        return []

    def waiting(self, tenant: str | None = None) -> list[Waiting]:
        """Return the sources that wait to be planned, of all tenants or of one, beside ``queued``."""
        return []

    def queued(self, scope: Scope, now_ms: int) -> QueuedSources:
        """Count the sources in queues of a scope other than a job; ``now_ms`` is command time."""
        return QueuedSources()

    def kept_by_deletion(self, tenant: str) -> list[str]:
        """Return, as sentences, what a request to delete a tenant's data does not delete in this lane."""
        return []

    def samples(self, samples_max: int) -> Iterable[tuple[str, list[Sample]]]:
        """Return the samples of each metric of the lane; of tenants, tables and the like at most ``samples_max``."""
        return ()

    def blockers(self) -> list[LaneBlocker]:
        """Return what is blocked until an operator acts, beside parked jobs."""
        return []

    def jobs_of(self, place: str) -> Q:
        """Return the condition that selects jobs of the lane in this place."""
        return Q()

    def bad_sources(self, place: str, since_ms: int, accepted_ms: int) -> Counter[str]:
        """Count, by error class, the sources of a place that were quarantined or failed alone since ``since_ms``.

        Only those count that are still out and arrived after ``accepted_ms``; both times are by the lane's clock.
        """
        return Counter()

    def release_bad_sources(self, place: str, since_ms: int, context: ActionContext) -> list[OperationOutcome]:
        """Release the sources of a repaired place that were quarantined since ``since_ms``, by the lane's clock."""
        return []

    def queue_rows(self) -> QuerySet[Any] | None:
        """Return the queues that polls plan from, None for a lane without queues.

        Their columns are lane, tenant, shard, level, block_count, byte_count, ready_at_ms.
        """
        return None

    def job_bytes_max(self) -> int:
        """Return the largest number of source bytes that the lane's policies allow a job; 0 if there are none."""
        return 0

    def overview(self, now_ms: int) -> LaneOverview:
        """Return what the lane adds to the front page; ``now_ms`` is command time."""
        return LaneOverview()

    def job_sections(self, job: Job, now_ms: int) -> list[Section]:
        """Return the sections of a job's page about its sources and results; ``now_ms`` is command time."""
        return []

    @abstractmethod
    def holding(self, jobs: Sequence[Job]) -> set[int]:
        """Return the row ids of those jobs that still own sources."""

    @abstractmethod
    def give_back(self, run: Operation, jobs: Sequence[Job]) -> None:
        """Release the sources of parked jobs, so that they are planned again; the caller ends the jobs right after."""


class LaneUnknown(LithifyError):
    """A job belongs to a lane that this build does not have."""

    code = "lane_unknown"


_lanes: dict[str, Lane] = {}


def register(lane: Lane) -> None:
    """Register a lane under its name."""
    _lanes[lane.name] = lane


def lane_of(name: str) -> Lane:
    """Return the lane of this name. Raises LaneUnknown."""
    try:
        return _lanes[name]
    except KeyError as error:
        raise LaneUnknown(f"no lane {name!r}: {', '.join(sorted(_lanes))}") from error


def lanes() -> list[Lane]:
    """Return all lanes, by name."""
    return [lane for _, lane in sorted(_lanes.items())]


def by_lane(jobs: Iterable[Job]) -> dict[str, list[Job]]:
    """Return the jobs by lane, in their given sequence."""
    found: defaultdict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        found[job.lane].append(job)
    return found


def lane_write(run: Operation, name: str) -> LaneWrite:
    """Return the lane's writes of an operation; ``finish`` is called at the end of the transaction."""
    if name not in run.writes:
        run.writes[name] = lane_of(name).open_write()
    write = run.writes[name]
    assert isinstance(write, LaneWrite)
    return write


def check_results(finished: Sequence[Finished]) -> dict[str, Accepted | FailureReason]:
    """Return, by job name, the accepted result or why it was rejected."""
    checked: dict[str, Accepted | FailureReason] = {}
    for name in by_lane(one.job for one in finished):
        own = [one for one in finished if one.job.lane == name]
        checked |= {one.job.name: result for one, result in zip(own, lane_of(name).check(own), strict=True)}
    return checked


def prepare_swaps(coming: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return, by lane, the rows that its swaps refer to."""
    return {name: lane_of(name).prepare(swaps) for name, swaps in coming.items()}
