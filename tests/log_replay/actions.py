"""Replays operators' orders, and those of the isolation of bad blocks, which stand in the log like an operator's.

Orders about limits, policies, pauses and pins change neither blocks nor jobs, and a request for deletion hides data
without doing so; they decide what later entries do, which say so. What was deleted from the store is not in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.schedule.errors import EntryUnknown
from engine.schedule.job_names import job_name
from engine.schedule.model import HOLDING_STATES, JobState
from tests.log_replay.state import ReplayedJob, ReplayedState, home_state

WITHOUT_EFFECT = frozenset(
    {
        *("change_limit", "change_level_policy", "pause", "resume", "pin", "unpin"),
        *("request_deletion", "certify_deletion", "release_sources", "withdraw_groups"),
        *("stop_isolation", "decide_isolation"),
    }
)


def apply_order(state: ReplayedState, index: int, order: Mapping[str, Any]) -> None:
    """Apply one order. Raises EntryUnknown for an action that this build does not know, or that an earlier one wrote
    without saying all that it did."""
    action = order["action"]
    if action in ("requeue", "release"):
        _requeue(state, order)
    elif action in ("cancel", "quarantine"):
        for name in order["jobs"]:
            _park(state, name, order["parked_reason"])
    elif action == "return_job_blocks":
        _give_back(state, order)
    elif action in ("plan_intervals", "compact_branch"):
        for created in order["created"]:
            state.create(index, created)
    elif action == "plan_timeline":
        _plan_timeline(state, index, order)
    elif action in ("dissolve_groups", "quarantine_sources", "quarantine_files", "fail_task", "end_compaction"):
        for name in order["jobs"]:
            _dissolve(state, name)
    elif action == "reset_failures":
        for name in order["jobs"]:
            state.jobs[name].failures = 0
    elif action in ("split", "set_missing_aside"):
        _split(state, order)
    elif action in ("retention", "drop_deleted") and "dropped" in order:
        _drop(state, order)
    elif action == "rewrite_blocks" and "rewrites" in order:
        _rewrite(state, order)
    elif action not in WITHOUT_EFFECT:
        raise EntryUnknown(f"the order {action!r} is not replayed")


def _plan_timeline(state: ReplayedState, index: int, order: Mapping[str, Any]) -> None:
    for name in (*order["ended"], *order["put_off"]):
        _dissolve(state, name)
    for created in order["created"]:
        state.create(index, created)
        state.jobs[created["job"]].state = JobState.BLOCKED
    for name in order["started"]:
        state.jobs[name].state = JobState.WAITING


def _requeue(state: ReplayedState, order: Mapping[str, Any]) -> None:
    for name in order["jobs"]:
        job = state.jobs[name]
        job.state, job.parked_reason = JobState.WAITING, ""
        if not order.get("keep_failures", False):
            job.failures = 0


def _park(state: ReplayedState, name: str, reason: str) -> None:
    state.jobs[name].state, state.jobs[name].parked_reason = JobState.PARKED, reason


def _give_back(state: ReplayedState, order: Mapping[str, Any]) -> None:
    for name in order["jobs"]:
        job = state.jobs[name]
        _dissolve(state, name)
        for sibling in _siblings(state, job):
            _dissolve(state, sibling)
        for key in job.source_keys():
            block = state.blocks[key]
            if (block.state, block.owner) == ("owned", name):
                block.state, block.owner = home_state(block.level), ""


def _dissolve(state: ReplayedState, name: str) -> None:
    state.jobs[name].state, state.jobs[name].parked_reason = JobState.DISSOLVED, ""


def _siblings(state: ReplayedState, job: ReplayedJob) -> list[str]:
    """Return the jobs that still hold the blocks of the same group: none of them can go on without the others."""
    if not job.group:
        return []
    return [name for name, other in state.jobs.items() if other.group == job.group and other.state in HOLDING_STATES]


def _split(state: ReplayedState, order: Mapping[str, Any]) -> None:
    parent = state.jobs[order["jobs"][0]]
    names = list(order["jobs"])
    if len(order["parts"]) > 1 or tuple(order["parts"][0]) != parent.sources:
        parent.state, parent.parked_reason = JobState.DISSOLVED, ""
        names = [
            job_name(part, tenant=parent.tenant, shard=parent.shard, level=parent.level) for part in order["parts"]
        ]
        for name, part in zip(names, order["parts"], strict=True):
            fresh = replace(parent, sources=tuple(part), state=JobState.WAITING, token=0, failures=0)
            state.jobs[name] = fresh
            for key in fresh.source_keys():
                state.blocks[key].owner = name
    reasons = order.get("parked_reasons", [])
    for name, reason in zip(names[len(names) - len(reasons) :], reasons, strict=True):
        _park(state, name, reason)


def _drop(state: ReplayedState, order: Mapping[str, Any]) -> None:
    """Let blocks leave the index; a job ends with its last source."""
    for shard, ulid in order["dropped"]:
        block = state.blocks[shard, ulid]
        owner, was_owned = block.owner, block.state == "owned"
        block.state = "dropped"
        if was_owned:
            job = state.jobs[owner]
            job.sources = tuple(source for source in job.sources if source != ulid)
            if not job.sources:
                job.state, job.parked_reason = JobState.DISSOLVED, ""


def _rewrite(state: ReplayedState, order: Mapping[str, Any]) -> None:
    """Make a job of each block that still holds deleted data."""
    for made in order["rewrites"]:
        block = state.blocks[made["shard"], made["source"]]
        block.state, block.owner = "owned", made["job"]
        state.jobs[made["job"]] = ReplayedJob(
            lane=order["lane"],
            tenant=block.tenant,
            shard=made["shard"],
            level=block.level,
            sources=(made["source"],),
            state=JobState.WAITING,
            is_rewrite=True,
        )
