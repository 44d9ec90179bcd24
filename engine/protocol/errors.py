"""Errors of the worker protocol."""

from __future__ import annotations

from engine.core.errors import LithifyError


class InvalidMessage(LithifyError):
    """A message is not what the protocol says; ``field`` names the place, e.g. ``updates[2].token``."""

    code = "invalid_message"

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}"


class InvalidToken(LithifyError):
    """A fencing token was not issued by this service for this job and this credential."""

    code = "invalid_token"
