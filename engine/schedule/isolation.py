"""Finds the one bad block of a job that keeps failing: split it, see which part fails, until a block fails alone.

1. A job that was parked for its failures is split: into the block that its last error names and the others (the word
   of an error is taken once, for the planned job), else into halves. Every part is smaller than its job, so that one
   bad block among n is alone after at most ``1 + log2(n)`` splits.
2. A block is quarantined only if it has failed alone on ``ALONE_RUNS`` attempts with the same error under one build,
   and that build has merged another block of its kind (lane and level) meanwhile: the control. A lone block whose runs
   do not agree, because nodes were moved to another build between them for example, runs once more.
3. A block is quarantined as missing only if an error said so and the store, asked again, has no such object.
4. When more than a fifth of a build's recent jobs fail with one error class, the build is broken, not the blocks:
   nothing is split or quarantined because of it.
5. When more than a fifth of recent blocks fail alone or are missing, whatever the build and the error class, the store
   is suspected: isolation stops until an operator decides. This rule holds for the sources of every lane.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ALONE_RUNS = 2
LONE_RUNS_MAX = 6
"""After so many runs that do not agree a lone block waits for somebody: builds may alternate, and errors vary."""
PART_FAILURES_MAX = 1
"""The failure limit of parts: one more failure takes a job out, so each part has the runs that a lone block needs."""
OBJECT_NOT_FOUND = "ObjectNotFound"
BROKEN_PERCENT = 20
BROKEN_JOBS_MIN = 3
"""A build is not called broken because of fewer failing jobs than this, however few jobs there were."""
BAD_SOURCES_PERCENT = 20
BAD_SOURCES_MIN = 5
"""Isolation is not stopped because of fewer bad sources than this, however few were merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRun:
    """An attempt that ended badly, with what its worker said of it (nothing, if its lease ran out)."""

    error_class: str
    build: str
    message: str = ""
    object: str = ""
    section: str = ""
    offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A job parked for its failures: the object keys of its sources in merge order, its failed runs, the last one last.

    ``is_part`` says that it was split off another job; ``control_builds`` are the builds that have merged another block
    of this kind since the job was made; ``missing`` are the keys under which the store has no object.
    """

    keys: tuple[str, ...]
    runs: tuple[FailedRun, ...]
    is_part: bool = False
    control_builds: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Split:
    """Make a job of each part; parts are positions of sources, in merge order."""

    parts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class SetMissingAside:
    """Quarantine the sources at these positions as missing; the others, if any, are merged without them."""

    positions: tuple[int, ...]
    run: FailedRun


@dataclass(frozen=True, slots=True)
class QuarantineBlock:
    """Quarantine the job's only source; ``run`` is the last failure that counts, ``attempts`` how many there were."""

    run: FailedRun
    attempts: int


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Let the lone block run once more: its failures so far are of different builds, or different errors."""

    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Leave the job parked."""

    why: str


Verdict = Split | SetMissingAside | QuarantineBlock | TryAgain | Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakage:
    """A build of which too many recent jobs failed with one error class."""

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
    """Sources that recent runs decided about. ``bad`` counts those that failed alone, are missing or cannot be read, by
    error class, each once; ``merged_count`` is the number of sources of completed jobs."""

    bad: Mapping[str, int]
    merged_count: int

    @property
    def bad_count(self) -> int:
        """Return the number of bad sources."""
        return sum(self.bad.values())

    @property
    def is_too_many(self) -> bool:
        """Whether so many are bad that the store is suspected, not the sources."""
        total = self.bad_count + self.merged_count
        return self.bad_count >= BAD_SOURCES_MIN and self.bad_count * 100 > total * BAD_SOURCES_PERCENT

    def __str__(self) -> str:
        classes = ", ".join(f"{count} {name}" for name, count in sorted(self.bad.items(), key=lambda one: -one[1]))
        return f"{self.bad_count} of {self.bad_count + self.merged_count} recent sources cannot be merged ({classes})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentRun:
    """An ended attempt. ``family`` is the planned job that its job is, or was split from: a job in parts counts once.
    ``error_class`` is None for a success."""

    family: int
    build: str
    error_class: str | None


def judge(suspect: Suspect, breakages: Iterable[Breakage] = ()) -> Verdict:
    """Return what to do with a job that was parked for its failures."""
    if not suspect.keys:
        return Wait("it has no blocks left: give its blocks back to end it")
    if not suspect.runs:
        return Wait("no attempt of it is known to have failed since it was last let go")
    last = suspect.runs[-1]
    for breakage in breakages:
        if breakage.build == last.build:
            return Wait(str(breakage))
    if missing := _missing(suspect):
        return missing
    if len(suspect.keys) > 1:
        return Split(_parts(suspect, last))
    return _judge_alone(suspect, last)


def find_breakages(runs: Iterable[RecentRun]) -> tuple[Breakage, ...]:
    """Return the builds that are broken, the worst error class of each, by build."""
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


def asks_for_missing(suspect: Suspect) -> bool:
    """Say whether the store should be asked which of the job's objects are missing."""
    return any(run.error_class == OBJECT_NOT_FOUND for run in suspect.runs)


def _missing(suspect: Suspect) -> SetMissingAside | None:
    said = [run for run in suspect.runs if run.error_class == OBJECT_NOT_FOUND]
    positions = tuple(place for place, key in enumerate(suspect.keys) if key in suspect.missing)
    return SetMissingAside(positions, said[-1]) if said and positions else None


def _parts(suspect: Suspect, last: FailedRun) -> tuple[tuple[int, ...], ...]:
    everything = tuple(range(len(suspect.keys)))
    if not suspect.is_part and last.object in suspect.keys:
        named = suspect.keys.index(last.object)
        return ((named,), tuple(place for place in everything if place != named))
    middle = len(everything) // 2
    return (everything[:middle], everything[middle:])


def _judge_alone(suspect: Suspect, last: FailedRun) -> QuarantineBlock | TryAgain | Wait:
    same = [run for run in suspect.runs if (run.error_class, run.build) == (last.error_class, last.build)]
    if len(same) < ALONE_RUNS <= len(suspect.runs) < LONE_RUNS_MAX:
        return TryAgain(f"its {len(suspect.runs)} runs alone failed differently, or on different builds")
    if len(same) < ALONE_RUNS:
        return Wait(f"its block failed alone {len(same)} times with {last.error_class}: requeue it for another attempt")
    if last.build not in suspect.control_builds:
        build = last.build or "its build"
        return Wait(f"its block fails alone, but {build} has merged no other of its kind meanwhile")
    return QuarantineBlock(last, len(same))
