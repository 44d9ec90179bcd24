"""The one way in which a push fails, whatever door it came through."""

from __future__ import annotations


class NotTaken(Exception):
    """A push was not taken, or not all of it.

    ``code`` is one of Connect's, ``reason`` a stable code that is counted, ``message`` for people. ``is_counted`` says
    that everything behind it was counted already.
    """

    def __init__(self, code: str, reason: str, message: str, *, is_counted: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.is_counted = is_counted
