"""What the replayed log knows of blocks and jobs: what the tables hold of them, without times and leases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.lanes.profiles.jobs import KIND as PROFILES
from engine.schedule.model import JobState

FINAL_LEVEL = 3
"""Blocks of this level are not merged any further."""

BlockKey = tuple[int, str]
"""Shard and id."""


@dataclass(slots=True)
class ReplayedBlock:
    """A block: ``state`` as the index names it, ``owner`` the job that holds it or held it last."""

    tenant: str
    level: int
    state: str
    owner: str = ""


@dataclass(slots=True)
class ReplayedJob:
    """A job, by its name the last one. ``source_shards``: by id, those of sources from other shards than its own.
    The results of a rewrite stay on the level of its source. ``group`` is what it is a part of, in lanes with groups;
    blocks of other lanes than that of profiles are not replayed."""

    lane: str
    tenant: str
    shard: int
    level: int
    sources: tuple[str, ...]
    state: JobState
    token: int = 0
    failures: int = 0
    parked_reason: str = ""
    source_shards: Mapping[str, int] = field(default_factory=dict)
    is_rewrite: bool = False
    group: str = ""

    def source_keys(self) -> list[BlockKey]:
        """Return its sources, in merge order, as far as they are replayed."""
        if self.lane != PROFILES:
            return []
        return [(self.source_shards.get(source, self.shard), source) for source in self.sources]


@dataclass(slots=True)
class ReplayedState:
    """What the log says there is. Apply entries in the order of their indexes (``replay.apply_entry``)."""

    last_index: int = 0
    blocks: dict[BlockKey, ReplayedBlock] = field(default_factory=dict)
    jobs: dict[str, ReplayedJob] = field(default_factory=dict)
    tenant_times: dict[tuple[str, str], int] = field(default_factory=dict)

    def add_blocks(self, added: list[dict[str, Any]]) -> None:
        """Let blocks enter the index; those that it has stay as they are."""
        for block in added:
            key = (block["shard"], block["id"])
            self.blocks.setdefault(key, ReplayedBlock(block["tenant"], block["level"], home_state(block["level"])))

    def create(self, index: int, created: Mapping[str, Any]) -> None:
        """Let a planned job enter the schedule."""
        is_assigned = created.get("is_assigned", True)
        job = self.jobs[created["job"]] = ReplayedJob(
            lane=created["lane"],
            tenant=created["tenant"],
            shard=created["shard"],
            level=created["level"],
            sources=tuple(created["sources"]),
            state=JobState.LEASED if is_assigned else JobState.WAITING,
            token=index if is_assigned else 0,
            source_shards=created.get("source_shards", {}),
            group=created.get("group", ""),
        )
        for key in job.source_keys():
            self.blocks[key].state, self.blocks[key].owner = "owned", created["job"]


def home_state(level: int) -> str:
    """Return the state of a live block of this level that no job owns."""
    return "final" if level >= FINAL_LEVEL else "queued"
