"""The job specification and result of the profiles lane, and their JSON form."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

KIND = "profiles"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceObject:
    """A source of a merge. ``metadata`` is the protobuf BlockMeta as the index holds it (segments of old writers
    carry no footer, so the object alone is not enough)."""

    id: str
    key: str
    size: int
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileMergeSpec:
    """All a profile merge needs to know.

    ``tenant`` is "" for segments. ``level`` is that of the sources. ``fence`` is the fencing token (a command index),
    mixed into the result ids, or None for the token-free ids of the format sheet. ``task_memory_bytes`` bounds what one
    dataset merge may hold; a larger dataset is cut by series.
    """

    job: str
    tenant: str
    shard: int
    level: int
    sources: tuple[SourceObject, ...]
    fence: int | None = None
    task_memory_bytes: int = 512 << 20

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "job": self.job,
            "tenant": self.tenant,
            "shard": self.shard,
            "level": self.level,
            "fence": self.fence,
            "task_memory_bytes": self.task_memory_bytes,
            "sources": [
                {"id": s.id, "key": s.key, "size": s.size, "metadata": base64.b64encode(s.metadata).decode()}
                for s in self.sources
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ProfileMergeSpec:
        return cls(
            job=data["job"],
            tenant=data["tenant"],
            shard=data["shard"],
            level=data["level"],
            fence=data["fence"],
            task_memory_bytes=data["task_memory_bytes"],
            sources=tuple(
                SourceObject(id=s["id"], key=s["key"], size=s["size"], metadata=base64.b64decode(s["metadata"]))
                for s in data["sources"]
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultBlock:
    """A block a merge wrote. ``metadata`` is its protobuf BlockMeta without ``size``; ``crc32c`` covers the object."""

    id: str
    key: str
    size: int
    crc32c: int
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileMergeResult:
    """What a finished profile merge reports: which sources it merged, and the blocks that replace them."""

    sources: tuple[str, ...]
    blocks: tuple[ResultBlock, ...]
    rows_read: int = 0
    rows_dropped: int = 0
    bytes_read: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "sources": list(self.sources),
            "blocks": [
                {
                    "id": b.id,
                    "key": b.key,
                    "size": b.size,
                    "crc32c": b.crc32c,
                    "metadata": base64.b64encode(b.metadata).decode(),
                }
                for b in self.blocks
            ],
            "rows_read": self.rows_read,
            "rows_dropped": self.rows_dropped,
            "bytes_read": self.bytes_read,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ProfileMergeResult:
        return cls(
            sources=tuple(data["sources"]),
            blocks=tuple(
                ResultBlock(
                    id=b["id"],
                    key=b["key"],
                    size=b["size"],
                    crc32c=b["crc32c"],
                    metadata=base64.b64decode(b["metadata"]),
                )
                for b in data["blocks"]
            ),
            rows_read=data["rows_read"],
            rows_dropped=data["rows_dropped"],
            bytes_read=data["bytes_read"],
        )
