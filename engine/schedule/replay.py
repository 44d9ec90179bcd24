"""Replays the command log: from nothing, or from a state that an earlier replay left, to the state the log describes.

1. A change set states what was done, not how it was decided; so replaying needs no planner, and no clock.
2. Applying an entry twice is the same as applying it once.
3. Entries of previous formats apply: what they do not say has the value it always had then.

Leases are not part of the state: renewals are not in the log; after a restart every lease is given anew or runs out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.formats.profile_block.container.object_names import parse_block_key
from engine.lanes.profiles.jobs import KIND as PROFILES
from engine.schedule.errors import EntryUnknown
from engine.schedule.model import FORMAT_VERSION, JobState
from engine.schedule.replay_orders import apply_order
from engine.schedule.replayed import BlockKey, ReplayedBlock, ReplayedJob, home_state

FORMATS = range(1, FORMAT_VERSION + 1)


@dataclass(slots=True)
class ReplayedState:
    """What the log says there is. Apply entries in the order of their indexes."""

    last_index: int = 0
    blocks: dict[BlockKey, ReplayedBlock] = field(default_factory=dict)
    jobs: dict[str, ReplayedJob] = field(default_factory=dict)
    tenant_times: dict[tuple[str, str], int] = field(default_factory=dict)

    def apply(self, *, index: int, kind: str, format_version: int, change_set: Mapping[str, Any]) -> None:
        """Apply one entry. Raises EntryUnknown for a kind or format that this build does not know."""
        if format_version not in FORMATS:
            raise EntryUnknown(
                f"entry {index} has format {format_version}, this build knows {min(FORMATS)} to {max(FORMATS)}"
            )
        if kind in ("add_blocks", "import_blocks"):
            self._add_blocks(change_set["added"])
        elif kind == "update_plan":
            self._update_plan(index, change_set)
        elif kind == "operate":
            apply_order(self, index, change_set)
        elif kind != "advance_clock":
            raise EntryUnknown(f"entry {index} is of the kind {kind!r}, which is not replayed")
        self.last_index = max(self.last_index, index)

    def _add_blocks(self, added: list[dict[str, Any]]) -> None:
        for block in added:
            key = (block["shard"], block["id"])
            self.blocks.setdefault(key, ReplayedBlock(block["tenant"], block["level"], home_state(block["level"])))

    def _update_plan(self, index: int, change_set: Mapping[str, Any]) -> None:
        for completed in change_set["completed"]:
            self._complete(completed)
        for returned in change_set["returned"]:
            job = self.jobs[returned["job"]]
            job.state = JobState.PARKED if returned["parked_reason"] else JobState.WAITING
            job.failures, job.parked_reason = returned["failures"], returned["parked_reason"]
        for assigned in change_set["assigned"]:
            job = self.jobs[assigned["job"]]
            job.state, job.token, job.failures = JobState.LEASED, index, assigned["failures"]
        for created in change_set["created"]:
            self.create(index, created)
        for charge in change_set.get("tenants", ()):
            share = (charge["lane"], charge["tenant"])
            self.tenant_times[share] = max(self.tenant_times.get(share, 0), charge["virtual_time"])

    def _complete(self, completed: Mapping[str, Any]) -> None:
        job = self.jobs[completed["job"]]
        job.state = JobState.DONE
        for key in job.source_keys():
            self.blocks[key].state = "replaced"
        results = [
            {
                "id": result["id"],
                "shard": job.shard,
                "level": job.level if job.is_rewrite else job.level + 1,
                "tenant": parse_block_key(result["key"]).tenant,
            }
            for result in completed["results"]
            if job.lane == PROFILES
        ]
        self._add_blocks(results)

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
