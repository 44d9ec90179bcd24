"""Replays the command log: from nothing, or from a state that an earlier replay left, to the state the log describes.

1. A change set states what was done, not how it was decided; so replaying needs no planner, and no clock.
2. Applying an entry twice is the same as applying it once.
3. Entries of previous formats apply: what they do not say has the value it always had then.

Leases are not part of the state: renewals are not in the log; after a restart every lease is given anew or runs out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.formats.profile_block.container.object_names import parse_block_key
from engine.lanes.profiles.jobs import KIND as PROFILES
from engine.schedule.errors import EntryUnknown
from engine.schedule.model import FORMAT_VERSION, JobState
from tests.log_replay.actions import apply_order
from tests.log_replay.state import ReplayedState

FORMATS = range(1, FORMAT_VERSION + 1)


def apply_entry(
    state: ReplayedState, *, index: int, kind: str, format_version: int, change_set: Mapping[str, Any]
) -> None:
    """Apply one entry. Raises EntryUnknown for a kind or format that this build does not know."""
    if format_version not in FORMATS:
        raise EntryUnknown(
            f"entry {index} has format {format_version}, this build knows {min(FORMATS)} to {max(FORMATS)}"
        )
    if kind in ("add_blocks", "import_blocks"):
        state.add_blocks(change_set["added"])
    elif kind == "update_plan":
        _update_plan(state, index, change_set)
    elif kind == "operate":
        apply_order(state, index, change_set)
    elif kind != "advance_clock":
        raise EntryUnknown(f"entry {index} is of the kind {kind!r}, which is not replayed")
    state.last_index = max(state.last_index, index)


def _update_plan(state: ReplayedState, index: int, change_set: Mapping[str, Any]) -> None:
    for completed in change_set["completed"]:
        _complete(state, completed)
    for returned in change_set["returned"]:
        job = state.jobs[returned["job"]]
        job.state = JobState.PARKED if returned["parked_reason"] else JobState.WAITING
        job.failures, job.parked_reason = returned["failures"], returned["parked_reason"]
    for assigned in change_set["assigned"]:
        job = state.jobs[assigned["job"]]
        job.state, job.token, job.failures = JobState.LEASED, index, assigned["failures"]
    for created in change_set["created"]:
        state.create(index, created)
    for charge in change_set.get("tenants", ()):
        share = (charge["lane"], charge["tenant"])
        state.tenant_times[share] = max(state.tenant_times.get(share, 0), charge["virtual_time"])


def _complete(state: ReplayedState, completed: Mapping[str, Any]) -> None:
    job = state.jobs[completed["job"]]
    job.state = JobState.DONE
    for key in job.source_keys():
        state.blocks[key].state = "replaced"
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
    state.add_blocks(results)
