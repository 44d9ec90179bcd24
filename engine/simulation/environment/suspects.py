"""Evidence against jobs that fail repeatedly, collected from polls for the isolation of bad blocks."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

from engine.schedule.isolation import FailedRun, RecentRun, Suspect
from engine.schedule.model import AttemptOutcome
from engine.simulation.environment.fleet import BUILD
from engine.simulation.memory.rows import MemoryJob
from engine.simulation.memory.schedule import MemorySchedule
from engine.simulation.memory.service import PollFact

LEASE_EXPIRED = "LeaseExpired"
RECENT_MAX = 100


class Suspects:
    """Failed runs by job, and recent merges. ``lost`` holds the objects that are missing from the store."""

    def __init__(self, schedule: MemorySchedule, lost: set[str]) -> None:
        self._schedule = schedule
        self._lost = lost
        self._runs: defaultdict[str, list[tuple[int, FailedRun]]] = defaultdict(list)
        self._merged: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self._recent: deque[RecentRun] = deque(maxlen=RECENT_MAX)

    def note(self, fact: PollFact) -> None:
        """Record the runs that a poll ended."""
        if fact.applied is None:
            return
        index = fact.applied.index
        for completion in fact.change_set.completed:
            job = completion.job
            self._merged[job.level].append((index, job.name))
            self._recent.append(RecentRun(family=job.id, build=BUILD, error_class=None))
        for returned in fact.change_set.returned:
            if returned.outcome is AttemptOutcome.RELEASED:
                continue
            reason = returned.reason
            run = FailedRun(
                error_class=reason.error_class if reason else LEASE_EXPIRED,
                build=BUILD,
                object=reason.object if reason else "",
            )
            self._fail(returned.job.name, returned.job.id, index, run)
        for assignment in fact.change_set.assigned:
            if assignment.failures > assignment.job.failures:  # takeover: the last run ended without a report
                run = FailedRun(error_class=LEASE_EXPIRED, build=BUILD)
                self._fail(assignment.job.name, assignment.job.id, index, run)

    def suspect(self, job: MemoryJob) -> Suspect:
        """Return the evidence against a parked job."""
        runs = tuple(run for index, run in self._runs[job.name] if index >= job.since_index)
        merged = (name for index, name in self._merged[job.level] if index >= job.since_index)
        return Suspect(
            keys=tuple(block.ulid for block in job.sources),
            runs=runs,
            is_part=job.root != 0,
            control_builds=frozenset({BUILD} if any(name != job.name for name in merged) else ()),
            missing=frozenset(block.ulid for block in job.sources if block.ulid in self._lost),
        )

    def recent(self) -> Iterable[RecentRun]:
        """Return recent runs."""
        return tuple(self._recent)

    def _fail(self, name: str, number: int, index: int, run: FailedRun) -> None:
        self._runs[name].append((index, run))
        job = self._schedule.jobs.get(name)
        family = job.root if job is not None and job.root else number
        self._recent.append(RecentRun(family=family, build=BUILD, error_class=run.error_class))
