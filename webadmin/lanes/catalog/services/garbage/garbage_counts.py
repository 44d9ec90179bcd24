"""Outcome of a garbage collection or of its dry run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

NAMES_SHOWN = 50


@dataclass(slots=True)
class Collected:
    """Counts, and the first names of deleted files and objects."""

    files_seen: int = 0
    files_condemned: int = 0
    files_spared: int = 0
    files_deleted: int = 0
    objects_seen: int = 0
    objects_condemned: int = 0
    objects_spared: int = 0
    objects_deleted: int = 0
    bytes_deleted: int = 0
    rows_deleted: int = 0
    failed: int = 0
    names: list[str] = field(default_factory=list)

    def name(self, names: Iterable[str]) -> None:
        """Record names up to the limit."""
        self.names += islice(names, max(0, NAMES_SHOWN - len(self.names)))

    def to_json(self) -> dict[str, Any]:
        """Return the counts."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "names"}
