"""The job specification and result of the catalog lane (staged changes of a branch), and their JSON form."""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass, fields
from typing import Any

KIND = "catalog"
Span = tuple[bytes, bytes | None]
"""Deleted keys: from one up to before another (None: without end)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFile:
    """A token's rows as a run in the store, and the intervals of keys that the token deletes beneath them."""

    key: str
    rows: int
    file_bytes: int
    tail_bytes: int
    intervals: tuple[Span, ...] = ()

    def to_json(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in ("key", "rows", "file_bytes", "tail_bytes")}
        return told | {"intervals": [[to_text(start), to_text(end)] for start, end in self.intervals]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> LayerFile:
        spans = tuple((base64.b64decode(start), of_text(end)) for start, end in data["intervals"])
        return cls(**(data | {"intervals": spans}))


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogCompactSpec:
    """All a compaction of a branch, or the merge of a commit, needs to know.

    Ranges and metaranges lie in the node's store under ``prefix``. The layers (newest first) are applied on the
    metarange ``base``; ``head`` is that of the branch's head commit. Files are cut by the four numbers of
    ``engine.formats.ranges.layout.SplitRules``, work by ``unit_bytes``. Results are named by their bytes, so that no
    fencing token is needed in them. ``task_memory_bytes`` bounds what is read ahead. A node with Spark merges in its
    own process what has at most ``here_rows`` staged rows and rewrites at most ``here_bytes``.
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
        told = {"kind": KIND} | {name: getattr(self, name) for name in _PLAIN}
        return told | {"layers": [each.to_json() for each in self.layers]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CatalogCompactSpec:
        layers = tuple(LayerFile.from_json(each) for each in data["layers"])
        return cls(**{name: data[name] for name in _PLAIN}, layers=layers)


_PLAIN = tuple(field.name for field in fields(CatalogCompactSpec) if field.name != "layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogCompactResult:
    """What a finished compaction reports: the metarange it made, and whether that equals the head's content.

    ``written`` are the ids of its ranges that the base does not have: with the metarange, all that it put.
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
        """Return what the command log keeps: a compaction has one result."""
        return [{"metarange": self.metarange, "equals_head": self.equals_head, "files": len(self.written)}]


def to_text(data: bytes | None) -> str | None:
    """Return bytes as JSON can say them."""
    return None if data is None else base64.b64encode(data).decode()


def of_text(text: str | None) -> bytes | None:
    """Return what ``to_text`` was given."""
    return None if text is None else base64.b64decode(text)
