"""What the replayed log knows of blocks and jobs: what the tables hold of them, without times and leases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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


def home_state(level: int) -> str:
    """Return the state of a live block of this level that no job owns."""
    return "final" if level >= FINAL_LEVEL else "queued"
