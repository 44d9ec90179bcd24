"""The error of a failed push, common to all protocols."""

from __future__ import annotations


class PushRejected(Exception):
    """A push was rejected, in whole or in part.

    ``code`` is one of Connect's, ``reason`` a stable code for metrics, ``message`` for humans. ``is_counted``: the
    failure was counted already.
    """

    def __init__(self, code: str, reason: str, message: str, *, is_counted: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.is_counted = is_counted
