"""Convert entries of the command log into counts.

Completed jobs are read by name and token: their row has the sources, the duration and the results.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from django.db.models import Count, F, Sum

from engine.core import ulids
from engine.core.errors import BadBlockName
from engine.formats.profile_block.container.object_names import parse_block_key
from engine.formats.profile_block.model import COMPACTION_LEVEL_MAX
from engine.lanes.profiles.jobs import KIND as LANE
from engine.schedule.model import JobState
from webadmin.lanes.profiles.models import Block
from webadmin.schedule.models import Command, Job

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

MINUTE_MS = 60_000
ADDING = (Command.Kind.ADD_BLOCKS, Command.Kind.IMPORT_BLOCKS)
DROPPING = ("retention", "drop_deleted", "repair_index")
"""Actions that remove blocks from the index unmerged."""
DROPPED_LANE = "dropped"
"""Stands for the lane in the flows of dropped blocks: they left a backlog without a job."""

FlowKey = tuple[int, str, str, int, int]
"""Minute, lane, tenant, shard, level."""
TotalKey = tuple[str, int, str]
"""Lane, level, what."""


class SpecColumns(TypedDict):
    """Columns from the specification of a job."""

    moved_sources: Any
    rewrites: Any


if TYPE_CHECKING:
    CountedJob = WithAnnotations[Job, SpecColumns]


@dataclass(slots=True)
class LogCounts:
    """Sums over some entries of the log."""

    flows: defaultdict[FlowKey, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    totals: Counter[TotalKey] = field(default_factory=Counter)
    last_completed_ms: int | None = None

    def arrive(self, minute_ms: int, block: dict[str, Any], size: int) -> None:
        """Count a block that was added to the index, unless it is final."""
        tenant, shard, level = str(block["tenant"]), int(block["shard"]), int(block["level"])
        if level < COMPACTION_LEVEL_MAX:
            self.flows[minute_ms, LANE, tenant, shard, level].update(arrived_blocks=1, arrived_bytes=size)
        self.totals[LANE, level, "blocks_added"] += 1

    def drop(self, minute_ms: int, block: Block) -> None:
        """Count a block that was removed from the index unmerged, if it was part of a backlog."""
        self.totals[LANE, block.level, "blocks_dropped"] += 1
        is_parked = block.owner_job is not None and block.owner_job.state == JobState.PARKED
        if block.level < COMPACTION_LEVEL_MAX and not is_parked:
            tenant = block.tenant.name if block.tenant else ""
            self.flows[minute_ms, DROPPED_LANE, tenant, block.shard, block.level].update(
                drained_blocks=1, drained_bytes=block.size_bytes
            )

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
        if command.kind in ADDING:
            for block in _entries(command, "added", ("tenant", "shard", "level", "size")):
                counts.arrive(minute_ms, block, int(block["size"]))
        elif command.kind == Command.Kind.UPDATE_PLAN:
            _count_plan(command, counts, jobs, minute_ms, wall_ms)
        elif command.kind == Command.Kind.OPERATE:
            name, part_count = _split(command)
            if part_count and (name, 0) in jobs:
                counts.count_event(JobPlace(jobs[name, 0].lane, jobs[name, 0].level), "jobs_added", part_count)
            for dropped in _dropped_by(command):
                counts.drop(minute_ms, dropped)
    return counts


def _count_plan(
    command: Command, counts: LogCounts, jobs: dict[tuple[str, int], CountedJob], minute_ms: int, wall_ms: int
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


def _count_completion(job: CountedJob, counts: LogCounts, minute_ms: int, wall_ms: int) -> None:
    run_ms = max(0, (job.finished_at_ms or 0) - (job.assigned_at_ms or 0))
    backlog = _drained(job) if job.level < COMPACTION_LEVEL_MAX else {}  # final blocks are in no backlog
    for shard, (block_count, byte_count) in backlog.items():
        flow = counts.flows[minute_ms, job.lane, job.tenant, shard, job.level]
        flow.update(drained_blocks=block_count, drained_bytes=byte_count)
    counts.flows[minute_ms, job.lane, job.tenant, job.shard, job.level].update(completed_jobs=1, run_ms=run_ms)
    place = JobPlace(job.lane, job.level)
    counts.count_event(place, "jobs_completed")
    counts.count_event(place, "blocks_merged", job.source_count)
    counts.count_event(place, "bytes_merged", job.source_bytes)
    level = job.level if job.rewrites else job.level + 1
    counts.count_event(place, "compaction_wait_seconds", _waited_seconds(job, wall_ms))
    for block in (job.result or {}).get("blocks", []):
        if "key" not in block:  # a block of another lane, which counts its blocks itself
            counts.totals[job.lane, level, "blocks_added"] += 1
            continue
        try:
            key = parse_block_key(block["key"])
        except BadBlockName:
            continue
        counts.arrive(minute_ms, {"tenant": key.tenant, "shard": key.shard, "level": level}, int(block["size"]))


def _waited_seconds(job: Job, wall_ms: int) -> int:
    """Return how long ago a job's first source was created, by the time in the ids of its results; 0 if unknown."""
    for block in (job.result or {}).get("blocks", []):
        try:
            return max(0, wall_ms - ulids.time_ms(parse_block_key(block["key"]).id)) // 1000
        except (BadBlockName, KeyError):
            continue
    return 0


def _dropped_by(command: Command) -> Iterable[Block]:
    """Return the blocks that an action removed from the index."""
    changes = command.change_set if isinstance(command.change_set, dict) else {}
    if changes.get("action") not in DROPPING:
        return ()
    # Entries of earlier builds name, without shards, the blocks that were examined.
    names = [ulid for _, ulid in changes["dropped"]] if "dropped" in changes else changes.get("blocks", [])
    rows = Block.objects.filter(ulid__in=names, removed_command_index=command.index)
    return rows.select_related("tenant", "owner_job").defer("metadata", "owner_job__spec", "owner_job__result")


def _drained(job: CountedJob) -> dict[int, tuple[int, int]]:
    """Return how many blocks and bytes left each shard with a completed job; usually there is one shard."""
    if not job.moved_sources:
        return {job.shard: (job.source_count, job.source_bytes)}
    replaced = Block.objects.filter(owner_job_id=job.pk, removed_command_index=job.finished_command_index)
    sources = replaced.order_by().values("shard")
    sums = sources.annotate(blocks=Count("id"), bytes=Sum("size_bytes"))
    return {row["shard"]: (row["blocks"], row["bytes"]) for row in sums}


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


def _jobs_of(commands: Iterable[Command]) -> dict[tuple[str, int], CountedJob]:
    """Return the jobs that the entries complete, assign or return, by name and by the token in the entry."""
    names = {
        entry["job"]
        for command in commands
        if command.kind == Command.Kind.UPDATE_PLAN
        for part in ("completed", "assigned", "returned")
        for entry in _entries(command, part, ("job",))
    }
    names |= {_split(command)[0] for command in commands if command.kind == Command.Kind.OPERATE} - {""}
    jobs: dict[tuple[str, int], CountedJob] = {}
    listed = sorted(names)
    for start in range(0, len(listed), 500):
        found = Job.objects.filter(name__in=listed[start : start + 500]).defer("spec")
        for job in found.annotate(moved_sources=F("spec__source_shards"), rewrites=F("spec__is_rewrite")).order_by(
            "id"
        ):
            jobs[job.name, job.token] = job
            jobs[job.name, 0] = job  # any row of the job: its name determines its place
    return jobs


def _places(command: Command, jobs: dict[tuple[str, int], CountedJob]) -> dict[str, JobPlace]:
    """Return lane and level of each job that an entry names."""
    found = {
        entry["job"]: JobPlace(str(entry["lane"]), int(entry["level"]))
        for entry in _entries(command, "created", ("job", "lane", "level"))
    }
    return found | {name: JobPlace(job.lane, job.level) for (name, token), job in jobs.items() if token == 0}
