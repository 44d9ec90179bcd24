"""Blocks of profiles in the command log: what was registered, dropped and merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, cast

from django.db.models import Count, F, Sum

from engine.core import ulids
from engine.core.errors import BadBlockName
from engine.formats.profile_block.container.object_names import parse_block_key
from engine.formats.profile_block.model import COMPACTION_LEVEL_MAX
from engine.schedule.model import JobState
from webadmin.lanes.profiles.models import Block
from webadmin.schedule.lane_flow import CountedSource, LaneFlow
from webadmin.schedule.models import Command, Job

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

ADDING = (Command.Kind.ADD_BLOCKS, Command.Kind.IMPORT_BLOCKS)
DROPPING = ("retention", "drop_deleted", "repair_index")
"""Actions that remove blocks from the index unmerged."""
NEEDED = ("tenant", "shard", "level", "size")


class SpecColumns(TypedDict):
    """Columns from the specification of a job."""

    moved_sources: Any
    rewrites: Any


if TYPE_CHECKING:
    _SpecJob = WithAnnotations[Job, SpecColumns]


class ProfileFlow(LaneFlow):
    """Blocks are counted by the tenant, shard and level in the index; final ones are in no backlog."""

    annotations: ClassVar[Mapping[str, Any]] = {
        "moved_sources": F("spec__source_shards"),
        "rewrites": F("spec__is_rewrite"),
    }

    def arrived(self, command: Command) -> Iterator[CountedSource]:
        if command.kind not in ADDING:
            return
        for block in _changes(command).get("added") or []:
            if isinstance(block, dict) and all(name in block for name in NEEDED):  # old formats may lack them
                yield _source(str(block["tenant"]), int(block["shard"]), int(block["level"]), int(block["size"]))

    def dropped(self, command: Command) -> Iterator[CountedSource]:
        changes = _changes(command)
        if command.kind != Command.Kind.OPERATE or changes.get("action") not in DROPPING:
            return
        # Entries of earlier builds name, without shards, the blocks that were examined.
        names = [ulid for _, ulid in changes["dropped"]] if "dropped" in changes else changes.get("blocks", [])
        rows = Block.objects.filter(ulid__in=names, removed_command_index=command.index)
        found = rows.select_related("tenant", "owner_job")
        for block in found.defer("metadata", "owner_job__spec", "owner_job__result"):
            is_parked = block.owner_job is not None and block.owner_job.state == JobState.PARKED
            tenant = block.tenant.name if block.tenant else ""
            source = _source(tenant, block.shard, block.level, block.size_bytes)
            yield source._replace(in_backlog=source.in_backlog and not is_parked)

    def drained(self, job: Job) -> Mapping[int, tuple[int, int]]:
        if job.level >= COMPACTION_LEVEL_MAX:
            return {}
        if not cast("_SpecJob", job).moved_sources:
            return super().drained(job)
        replaced = Block.objects.filter(owner_job_id=job.pk, removed_command_index=job.finished_command_index)
        sums = replaced.order_by().values("shard").annotate(blocks=Count("id"), bytes=Sum("size_bytes"))
        return {row["shard"]: (row["blocks"], row["bytes"]) for row in sums}

    def results(self, job: Job) -> Iterable[CountedSource]:
        level = job.level if cast("_SpecJob", job).rewrites else job.level + 1
        for block in (job.result or {}).get("blocks", []):
            try:
                key = parse_block_key(block["key"])
            except BadBlockName:
                continue
            yield _source(key.tenant, key.shard, level, int(block["size"]))

    def waited_seconds(self, job: Job, wall_ms: int) -> int:
        """Return the age by the time in the ids of results, which is that of the first source."""
        for block in (job.result or {}).get("blocks", []):
            try:
                return max(0, wall_ms - ulids.time_ms(parse_block_key(block["key"]).id)) // 1000
            except (BadBlockName, KeyError):
                continue
        return 0


def _source(tenant: str, shard: int, level: int, size_bytes: int) -> CountedSource:
    return CountedSource(tenant, shard, level, size_bytes, in_backlog=level < COMPACTION_LEVEL_MAX)


def _changes(command: Command) -> dict[str, Any]:
    return command.change_set if isinstance(command.change_set, dict) else {}
