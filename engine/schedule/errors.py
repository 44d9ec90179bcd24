"""Errors of the schedule."""

from __future__ import annotations

from engine.core.errors import LithifyError


class ResultRefused(LithifyError):
    """A worker's result does not match its job; it is discarded and the sources stay live."""

    code = "result_refused"


class LimitRefused(LithifyError):
    """The limit does not allow this value or this scope."""

    code = "limit_refused"


class ScopeRefused(LithifyError):
    """The scope is malformed."""

    code = "scope_refused"


class EntryUnknown(LithifyError):
    """An entry of the command log has a kind or format that this build cannot replay."""

    code = "entry_unknown"


class PolicyRefused(LithifyError):
    """The level policy has unknown, missing or invalid values."""

    code = "policy_refused"


class SnapshotRefused(LithifyError):
    """The input of a plan is inconsistent."""

    code = "snapshot_refused"
