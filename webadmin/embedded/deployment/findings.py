"""Findings of deployment checks."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass


class Level(enum.StrEnum):
    """Severity of a finding. Only an error makes ``check_deployment`` exit with 1."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of a check.

    ``name`` is a stable identifier of the check (``database``, ``object_store``). ``found`` is a sentence about the
    state, ``advice`` one about what to do; it is empty for ``Level.OK``.
    """

    name: str
    level: Level
    found: str
    advice: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the finding as ``check_deployment --json`` prints it."""
        return {"name": self.name, "level": self.level.value, "found": self.found, "advice": self.advice}


Check = Callable[[], Iterable[Finding]]
"""Checks one dependency. It only reads, apart from scratch objects that it removes.

An error that it raises becomes a finding of ``Level.ERROR``, named after the function without ``check_``.
"""
