"""Errors of the schedule's own state."""

from __future__ import annotations

from engine.core.errors import LithifyError


class StaleSnapshot(LithifyError):
    """What a change set rests on has changed since it was prepared; nothing was applied, prepare again."""

    code = "stale_snapshot"
    retryable = True


class ScheduleBusy(LithifyError):
    """Too many others changed the schedule at the same time; poll again."""

    code = "schedule_busy"
    retryable = True


class PolicyMissing(LithifyError):
    """A level has no policy row, so nobody can say when its blocks make a job."""

    code = "policy_missing"


class FilterEmpty(LithifyError):
    """An operator's order names no jobs, or too many at once."""

    code = "filter_empty"


class NotFound(LithifyError):
    """What an operator's order names does not exist."""

    code = "not_found"


class DurationRefused(LithifyError):
    """A limit or pause cannot last that long."""

    code = "duration_refused"


class LogBehind(LithifyError):
    """The bucket holds a position that is not in this command log; objects may not be deleted."""

    code = "log_behind"


class SourcesChanged(LithifyError):
    """A job's sources are no longer all live and owned by it; nothing was replaced."""

    code = "sources_changed"
    retryable = True
