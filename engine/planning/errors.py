"""Errors of the planner."""

from __future__ import annotations

from engine.errors import LithifyError


class PolicyRefused(LithifyError):
    """A level cannot have such a policy."""

    code = "policy_refused"


class SnapshotRefused(LithifyError):
    """What a plan should be made of contradicts itself."""

    code = "snapshot_refused"
