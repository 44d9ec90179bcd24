"""The job specification and result of the catalog lane (staged changes of a branch), and their JSON form."""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass, fields
from typing import Any

KIND = "catalog"
Span = tuple[bytes, bytes | None]
"""Deleted keys: start, and end (exclusive, None for unbounded)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFile:
    """A token's rows as a run in the store, and the key intervals that the token deletes from layers below it."""

    key: str
    rows: int
    file_bytes: int
    tail_bytes: int
    intervals: tuple[Span, ...] = ()

    def to_json(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in ("key", "rows", "file_bytes", "tail_bytes")}
        return plain | {"intervals": [[to_text(start), to_text(end)] for start, end in self.intervals]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> LayerFile:
        spans = tuple((base64.b64decode(start), of_text(end)) for start, end in data["intervals"])
        return cls(**(data | {"intervals": spans}))


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogCompactSpec:
    """The specification of a branch's compaction or a commit's merge.

    Ranges and metaranges are stored in the node's store under ``prefix``. The layers (newest first) are applied to the
    metarange ``base``; ``head`` is the metarange of the branch's head commit. The four split numbers are those of
    ``engine.formats.ranges.layout.SplitRules``; ``unit_bytes`` is the size of a unit of work. Results are named by
    their bytes and need no fencing token. ``task_memory_bytes`` bounds what is read ahead. A node with Spark merges in
    its own process if at most ``here_rows`` staged rows are read and at most ``here_bytes`` are rewritten.
    """

    job: str
    tenant: str
    prefix: str
    base: str
    head: str
    layers: tuple[LayerFile, ...]
    bytes_min: int
    bytes_max: int
    every: int
    borders_every: int
    unit_bytes: int
    task_memory_bytes: int
    here_rows: int
    here_bytes: int

    def to_json(self) -> dict[str, Any]:
        plain = {"kind": KIND} | {name: getattr(self, name) for name in _PLAIN}
        return plain | {"layers": [each.to_json() for each in self.layers]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CatalogCompactSpec:
        layers = tuple(LayerFile.from_json(each) for each in data["layers"])
        return cls(**{name: data[name] for name in _PLAIN}, layers=layers)


_PLAIN = tuple(field.name for field in fields(CatalogCompactSpec) if field.name != "layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogCompactResult:
    """The report of a finished compaction: the new metarange, and whether its content equals the head's.

    ``written`` holds the ids of its ranges that the base does not have; with the metarange these are all files written.
    """

    metarange: str
    equals_head: bool
    written: tuple[str, ...] = ()
    rows_read: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    bytes_changed: int = 0
    bytes_written: int = 0
    ranges_kept: int = 0
    ranges_dropped: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"kind": KIND} | asdict(self)

    def to_log(self) -> list[dict[str, Any]]:
        """Return the entry of the command log: a compaction has one result."""
        return [{"metarange": self.metarange, "equals_head": self.equals_head, "files": len(self.written)}]


def to_text(data: bytes | None) -> str | None:
    """Encode bytes for JSON (base64)."""
    return None if data is None else base64.b64encode(data).decode()


def of_text(text: str | None) -> bytes | None:
    """Decode what ``to_text`` returned."""
    return None if text is None else base64.b64decode(text)
