"""Errors of questions to profile data."""

from __future__ import annotations

from engine.errors import LithifyError


class InvalidSelector(LithifyError):
    """A label selector cannot be read; ``offset`` is the character where the trouble is (-1: no single place)."""

    code = "invalid_selector"

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(offset, reason)
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return self.reason + (f" at character {self.offset}" if self.offset >= 0 else "")
