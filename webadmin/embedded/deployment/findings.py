"""What a check of the deployment returns."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass


class Level(enum.StrEnum):
    """How serious a finding is. Only an error makes ``check_deployment`` exit with 1."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of a check.

    ``name`` is stable and says what was checked (``database``, ``object_store``). ``found`` is a sentence about what
    is there, ``advice`` one about what to do; it is empty for ``Level.OK``.
    """

    name: str
    level: Level
    found: str
    advice: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the finding as ``check_deployment --json`` prints it."""
        return {"name": self.name, "level": self.level.value, "found": self.found, "advice": self.advice}


Check = Callable[[], Iterable[Finding]]
"""Tries one dependency. It reads only, apart from scratch objects that it removes. An error that it raises is reported
as a finding of ``Level.ERROR`` under the function's name without ``check_``."""
