"""Errors of the worker protocol."""

from __future__ import annotations

from engine.core.errors import LithifyError


class InvalidMessage(LithifyError):
    """A message does not conform to the protocol; ``field`` is the invalid field, e.g. ``updates[2].token``."""

    code = "invalid_message"

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


class InvalidToken(LithifyError):
    """A fencing token was not issued by this service for this job and credential."""

    code = "invalid_token"
