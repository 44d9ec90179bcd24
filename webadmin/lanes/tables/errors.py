"""Errors of tables; each message names what to change."""

from __future__ import annotations

from engine.core.errors import LithifyError


class TableRefused(LithifyError):
    """A table cannot be created or changed as requested."""

    code = "table_refused"


class TableMissing(LithifyError):
    """The tenant has no table of this name."""

    code = "not_found"


class TableExists(LithifyError):
    """The name is in use, or the URL belongs to another table."""

    code = "name_taken"


class RegistrationRefused(LithifyError):
    """Files cannot be registered, or an interval cannot be dropped; nothing was changed."""

    code = "registration_refused"


class IntervalRefused(RegistrationRefused):
    """An interval is invalid: it ends before it begins, cuts chunks or files, or touches too many chunks."""

    code = "interval_refused"
