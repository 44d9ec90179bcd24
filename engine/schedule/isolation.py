"""Isolate the bad block of a job that fails repeatedly: split the job until one block fails alone.

1. A job that was parked for its failures is split: into the block that its last error names and the others (only for
   the planned job, not for its parts), else into halves. Every part is smaller than its job, so one bad block among n
   is alone after at most ``1 + log2(n)`` splits.
2. A block is quarantined only if it has failed alone in ``SINGLE_RUNS_MIN`` attempts with the same error under one
   build, and that build has merged another block of the same lane and level since then (the control). A single block
   whose attempts disagree, for example because nodes were upgraded between them, is tried once more.
3. A block is quarantined as missing only if an error reported it and a second lookup finds no such object.
4. If more than a fifth of a build's recent jobs fail with one error class, the build is considered broken, not the
   blocks: it causes no split and no quarantine.
5. If more than a fifth of recent blocks fail alone or are missing, under any build and with any error class, the store
   is suspected: isolation stops until an operator decides. This rule applies to the sources of every lane.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SINGLE_RUNS_MIN = 2
SINGLE_RUNS_MAX = 6
"""Attempts that disagree after which a single block stays parked until an operator decides."""
PART_FAILURES_MAX = 1
"""Failure limit of parts: one more failure parks the job, so each part gets ``SINGLE_RUNS_MIN`` attempts."""
OBJECT_NOT_FOUND = "ObjectNotFound"
BROKEN_PERCENT = 20
BROKEN_JOBS_MIN = 3
"""Minimum number of failed jobs for a broken build."""
BAD_SOURCES_PERCENT = 20
BAD_SOURCES_MIN = 5
"""Minimum number of bad sources that stops isolation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRun:
    """A failed attempt with the error that its worker reported (empty if its lease expired)."""

    error_class: str
    build: str
    message: str = ""
    object: str = ""
    section: str = ""
    offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A job parked for its failures: object keys of its sources in merge order, and its failed runs, oldest first.

    ``is_part``: it was split off another job. ``control_builds``: builds that have merged another block of this lane
    and level since the job was created. ``missing``: keys under which the store has no object.
    """

    keys: tuple[str, ...]
    runs: tuple[FailedRun, ...]
    is_part: bool = False
    control_builds: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Split:
    """Create a job from each part; parts are positions of sources, in merge order."""

    parts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class QuarantineMissing:
    """Quarantine the sources at these positions as missing; merge the others, if any, without them."""

    positions: tuple[int, ...]
    run: FailedRun


@dataclass(frozen=True, slots=True)
class QuarantineBlock:
    """Quarantine the job's only source; ``run`` is its last failure, ``attempts`` the number of equal failures."""

    run: FailedRun
    attempts: int


@dataclass(frozen=True, slots=True)
class RetrySingle:
    """Run the single block once more: its failures so far have different builds or errors."""

    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Leave the job parked."""

    why: str


IsolationDecision = Split | QuarantineMissing | QuarantineBlock | RetrySingle | Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakage:
    """A build with too many recent jobs that failed with one error class."""

    build: str
    error_class: str
    failed_jobs: int
    jobs: int

    def __str__(self) -> str:
        name = self.build or "an unnamed build"
        return (
            f"merging is broken in {name}: {self.failed_jobs} of {self.jobs} recent jobs failed with {self.error_class}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentSources:
    """Outcome of recent runs by source.

    ``bad`` counts sources that failed alone, are missing or cannot be read, each once, by error class. ``merged_count``
    is the number of sources of completed jobs.
    """

    bad: Mapping[str, int]
    merged_count: int

    @property
    def bad_count(self) -> int:
        """Return the number of bad sources."""
        return sum(self.bad.values())

    @property
    def is_too_many(self) -> bool:
        """Return whether the share of bad sources makes the store the suspect."""
        total = self.bad_count + self.merged_count
        return self.bad_count >= BAD_SOURCES_MIN and self.bad_count * 100 > total * BAD_SOURCES_PERCENT

    def __str__(self) -> str:
        classes = ", ".join(f"{count} {name}" for name, count in sorted(self.bad.items(), key=lambda one: -one[1]))
        return f"{self.bad_count} of {self.bad_count + self.merged_count} recent sources cannot be merged ({classes})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentRun:
    """An ended attempt; ``error_class`` is None for a success.

    ``family`` is the id of the planned job or of the job that it was split from, so the parts of a job count once.
    """

    family: int
    build: str
    error_class: str | None


def judge(suspect: Suspect, breakages: Iterable[Breakage] = ()) -> IsolationDecision:
    """Return the action for a job that was parked for its failures."""
    if not suspect.keys:
        return Wait("it has no blocks left: return its blocks to their queues to end it")
    if not suspect.runs:
        return Wait("no failed attempt is recorded since it was last requeued")
    last = suspect.runs[-1]
    for breakage in breakages:
        if breakage.build == last.build:
            return Wait(str(breakage))
    if missing := _missing(suspect):
        return missing
    if len(suspect.keys) > 1:
        return Split(_parts(suspect, last))
    return _judge_single(suspect, last)


def find_breakages(runs: Iterable[RecentRun]) -> tuple[Breakage, ...]:
    """Return the broken builds, sorted, each with its most frequent error class."""
    families: defaultdict[str, set[int]] = defaultdict(set)
    failed: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for run in runs:
        families[run.build].add(run.family)
        if run.error_class is not None:
            failed[run.build, run.error_class].add(run.family)
    worst: dict[str, Breakage] = {}
    for (build, error_class), jobs in sorted(failed.items()):
        count, total = len(jobs), len(families[build])
        is_broken = count >= BROKEN_JOBS_MIN and count * 100 > total * BROKEN_PERCENT
        if is_broken and (build not in worst or count > worst[build].failed_jobs):
            worst[build] = Breakage(build=build, error_class=error_class, failed_jobs=count, jobs=total)
    return tuple(worst[build] for build in sorted(worst))


def reports_missing_object(suspect: Suspect) -> bool:
    """Return whether the caller should look up which of the job's objects are missing."""
    return any(run.error_class == OBJECT_NOT_FOUND for run in suspect.runs)


def _missing(suspect: Suspect) -> QuarantineMissing | None:
    reports = [run for run in suspect.runs if run.error_class == OBJECT_NOT_FOUND]
    positions = tuple(place for place, key in enumerate(suspect.keys) if key in suspect.missing)
    return QuarantineMissing(positions, reports[-1]) if reports and positions else None


def _parts(suspect: Suspect, last: FailedRun) -> tuple[tuple[int, ...], ...]:
    everything = tuple(range(len(suspect.keys)))
    if not suspect.is_part and last.object in suspect.keys:
        named = suspect.keys.index(last.object)
        return ((named,), tuple(place for place in everything if place != named))
    middle = len(everything) // 2
    return (everything[:middle], everything[middle:])


def _judge_single(suspect: Suspect, last: FailedRun) -> QuarantineBlock | RetrySingle | Wait:
    same = [run for run in suspect.runs if (run.error_class, run.build) == (last.error_class, last.build)]
    if len(same) < SINGLE_RUNS_MIN <= len(suspect.runs) < SINGLE_RUNS_MAX:
        return RetrySingle(f"its {len(suspect.runs)} runs alone failed differently, or on different builds")
    if len(same) < SINGLE_RUNS_MIN:
        return Wait(f"its block failed alone {len(same)} times with {last.error_class}: requeue it for another attempt")
    if last.build not in suspect.control_builds:
        build = last.build or "its build"
        return Wait(f"its block fails alone, but {build} has merged no other block of its lane and level since")
    return QuarantineBlock(last, len(same))
