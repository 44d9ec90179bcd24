"""Errors of the schedule."""

from __future__ import annotations

from engine.core.errors import LithifyError


class ResultRefused(LithifyError):
    """A worker's result does not fit its job; nothing of it was used and the sources stay live."""

    code = "result_refused"


class LimitRefused(LithifyError):
    """A limit cannot have this value, or cannot be set there."""

    code = "limit_refused"


class ScopeRefused(LithifyError):
    """Nothing on the schedule can have this scope."""

    code = "scope_refused"


class EntryUnknown(LithifyError):
    """An entry of the command log is of a kind or a format that this build cannot replay."""

    code = "entry_unknown"


class PolicyRefused(LithifyError):
    """A level cannot have such a policy."""

    code = "policy_refused"


class SnapshotRefused(LithifyError):
    """What a plan should be made of contradicts itself."""

    code = "snapshot_refused"
