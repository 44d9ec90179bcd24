"""Errors of the schedule's own state."""

from __future__ import annotations

from engine.core.errors import LithifyError


class StaleSnapshot(LithifyError):
    """The state on which a change set is based has changed; nothing was applied, prepare again."""

    code = "stale_snapshot"
    retryable = True


class ScheduleBusy(LithifyError):
    """Too many concurrent changes of the schedule; poll again."""

    code = "schedule_busy"
    retryable = True


class PolicyMissing(LithifyError):
    """A level has no policy row, so its blocks cannot be planned."""

    code = "policy_missing"


class FilterEmpty(LithifyError):
    """An operator's action selects no jobs, or too many at once."""

    code = "filter_empty"


class NotFound(LithifyError):
    """An object that an operator's action names does not exist."""

    code = "not_found"


class DurationRefused(LithifyError):
    """The duration of a limit or pause is out of bounds."""

    code = "duration_refused"


class LogBehind(LithifyError):
    """The bucket holds a position that is not in this command log; objects may not be deleted."""

    code = "log_behind"


class SourcesChanged(LithifyError):
    """A job's sources are no longer all live and owned by it; nothing was replaced."""

    code = "sources_changed"
    retryable = True
