"""Convert entries of the command log into counts.

Completed jobs are read by name and token: their row has the sources, the duration and the results.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from webadmin.schedule.lane_flow import CountedSource, LaneFlow
from webadmin.schedule.lanes import lanes
from webadmin.schedule.models import Command, Job

MINUTE_MS = 60_000
DROPPED_LANE = "dropped"
"""Stands for the lane in the flows of dropped blocks: they left a backlog without a job."""

FlowKey = tuple[int, str, str, int, int]
"""Minute, lane, tenant, shard, level."""
TotalKey = tuple[str, int, str]
"""Lane, level, what."""


@dataclass(slots=True)
class LogCounts:
    """Sums over some entries of the log."""

    flows: defaultdict[FlowKey, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    totals: Counter[TotalKey] = field(default_factory=Counter)
    last_completed_ms: int | None = None

    def arrive(self, minute_ms: int, lane: str, source: CountedSource) -> None:
        """Count a source that was registered, or a result."""
        if source.in_backlog:
            flow = self.flows[minute_ms, lane, source.tenant, source.shard, source.level]
            flow.update(arrived_blocks=1, arrived_bytes=source.size_bytes)
        self.totals[lane, source.level, "blocks_added"] += 1

    def drop(self, minute_ms: int, lane: str, source: CountedSource) -> None:
        """Count a source that was removed unmerged."""
        self.totals[lane, source.level, "blocks_dropped"] += 1
        if source.in_backlog:
            flow = self.flows[minute_ms, DROPPED_LANE, source.tenant, source.shard, source.level]
            flow.update(drained_blocks=1, drained_bytes=source.size_bytes)

    def count_event(self, job: JobPlace | None, what: str, count: int = 1) -> None:
        """Count an event of a job, if its level is known."""
        if job is not None:
            self.totals[job.lane, job.level, what] += count


@dataclass(frozen=True, slots=True)
class JobPlace:
    """The place of a job that a command names."""

    lane: str
    level: int


def count_commands(commands: Iterable[Command]) -> LogCounts:
    """Count the events in these entries of the log."""
    commands = list(commands)
    counts, jobs = LogCounts(), _jobs_of(commands)
    for command in commands:
        wall_ms = int(command.wall_time.timestamp() * 1000)
        minute_ms = wall_ms - wall_ms % MINUTE_MS
        for lane in lanes():
            for source in lane.flow.arrived(command):
                counts.arrive(minute_ms, lane.name, source)
            for source in lane.flow.dropped(command):
                counts.drop(minute_ms, lane.name, source)
        if command.kind == Command.Kind.UPDATE_PLAN:
            _count_plan(command, counts, jobs, minute_ms, wall_ms)
        elif command.kind == Command.Kind.OPERATE:
            name, part_count = _split(command)
            if part_count and (name, 0) in jobs:
                counts.count_event(JobPlace(jobs[name, 0].lane, jobs[name, 0].level), "jobs_added", part_count)
    return counts


def _count_plan(
    command: Command, counts: LogCounts, jobs: dict[tuple[str, int], Job], minute_ms: int, wall_ms: int
) -> None:
    places = _places(command, jobs)
    for entry in _entries(command, "created", ("job",)):
        counts.count_event(places.get(entry["job"]), "jobs_added")
        counts.count_event(places.get(entry["job"]), "jobs_assigned", int(entry.get("is_assigned", True)))
    for entry in _entries(command, "assigned", ("job",)):
        counts.count_event(places.get(entry["job"]), "jobs_assigned")
        counts.count_event(places.get(entry["job"]), "jobs_reassigned", int(bool(entry.get("replaces_token"))))
    for entry in _entries(command, "returned", ("job",)):
        counts.count_event(places.get(entry["job"]), f"runs_{entry.get('outcome', 'returned')}")
        counts.count_event(places.get(entry["job"]), "jobs_evicted", int(bool(entry.get("parked_reason"))))
    for entry in _entries(command, "completed", ("job", "token")):
        job = jobs.get((entry["job"], entry["token"]))
        if job is not None and job.finished_command_index == command.index:
            _count_completion(job, counts, minute_ms, wall_ms)
            counts.last_completed_ms = max(counts.last_completed_ms or 0, wall_ms)


def _count_completion(job: Job, counts: LogCounts, minute_ms: int, wall_ms: int) -> None:
    run_ms = max(0, (job.finished_at_ms or 0) - (job.assigned_at_ms or 0))
    # The log outlives a lane that is not supported any more.
    flow = next((lane.flow for lane in lanes() if lane.name == job.lane), LaneFlow())
    for shard, (block_count, byte_count) in flow.drained(job).items():
        drained = counts.flows[minute_ms, job.lane, job.tenant, shard, job.level]
        drained.update(drained_blocks=block_count, drained_bytes=byte_count)
    counts.flows[minute_ms, job.lane, job.tenant, job.shard, job.level].update(completed_jobs=1, run_ms=run_ms)
    place = JobPlace(job.lane, job.level)
    counts.count_event(place, "jobs_completed")
    counts.count_event(place, "blocks_merged", job.source_count)
    counts.count_event(place, "bytes_merged", job.source_bytes)
    counts.count_event(place, "compaction_wait_seconds", flow.waited_seconds(job, wall_ms))
    for result in flow.results(job):
        counts.arrive(minute_ms, job.lane, result)


def _split(command: Command) -> tuple[str, int]:
    """Return the job that an action split, and into how many; "" and 0 for any other action."""
    changes = command.change_set if isinstance(command.change_set, dict) else {}
    names, parts = changes.get("jobs"), changes.get("parts")
    if not isinstance(names, list) or not isinstance(parts, list) or not names:
        return "", 0
    return str(names[0]), len(parts)


def _entries(command: Command, part: str, needed: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the entries of one part of a change set that have the needed fields: old formats may lack them."""
    changes = command.change_set if isinstance(command.change_set, dict) else {}
    for entry in changes.get(part) or []:
        if isinstance(entry, dict) and all(name in entry for name in needed):
            yield entry


def _jobs_of(commands: Iterable[Command]) -> dict[tuple[str, int], Job]:
    """Return the jobs that the entries complete, assign or return, by name and by the token in the entry."""
    names = {
        entry["job"]
        for command in commands
        if command.kind == Command.Kind.UPDATE_PLAN
        for part in ("completed", "assigned", "returned")
        for entry in _entries(command, part, ("job",))
    }
    names |= {_split(command)[0] for command in commands if command.kind == Command.Kind.OPERATE} - {""}
    annotations = {name: value for lane in lanes() for name, value in lane.flow.annotations.items()}
    jobs: dict[tuple[str, int], Job] = {}
    listed = sorted(names)
    for start in range(0, len(listed), 500):
        found = Job.objects.filter(name__in=listed[start : start + 500]).defer("spec")
        for job in found.annotate(**annotations).order_by("id"):
            jobs[job.name, job.token] = job
            jobs[job.name, 0] = job  # any row of the job: its name determines its place
    return jobs


def _places(command: Command, jobs: dict[tuple[str, int], Job]) -> dict[str, JobPlace]:
    """Return lane and level of each job that an entry names."""
    found = {
        entry["job"]: JobPlace(str(entry["lane"]), int(entry["level"]))
        for entry in _entries(command, "created", ("job", "lane", "level"))
    }
    return found | {name: JobPlace(job.lane, job.level) for (name, token), job in jobs.items() if token == 0}
