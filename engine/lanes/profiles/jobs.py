"""The job specification and result of the profiles lane, and their JSON form."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

KIND = "profiles"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteMask:
    """Rows that a merge leaves out: the tenant's, of the service ("": of any), whose series the selector matches.

    ``index`` is that of the delete command: the mask is for sources that do not obey it yet. Times are those of rows,
    unix milliseconds, ``[from_ms, until_ms)``, None without bound.
    """

    index: int
    tenant: str
    service: str = ""
    selector: str = ""
    from_ms: int | None = None
    until_ms: int | None = None

    @property
    def is_total(self) -> bool:
        """Whether nothing of a service that it names is left."""
        return not self.selector and self.from_ms is None and self.until_ms is None

    def takes_all(self, min_time_ms: int, max_time_ms: int) -> bool:
        """Whether nothing is left of a dataset that it is about, whose data has these times."""
        starts = self.from_ms is None or self.from_ms <= min_time_ms
        return not self.selector and starts and (self.until_ms is None or max_time_ms < self.until_ms)

    def to_json(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "tenant": self.tenant,
            "service": self.service,
            "selector": self.selector,
            "from_ms": self.from_ms,
            "until_ms": self.until_ms,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceObject:
    """A source of a merge. ``metadata`` is the protobuf BlockMeta as the index holds it (segments of old writers
    carry no footer, so the object alone is not enough). Its bytes obey delete commands up to ``masks_applied``.
    ``shard`` is its own where that is not the one of the job: a consolidation has sources of several shards."""

    id: str
    key: str
    size: int
    metadata: bytes
    masks_applied: int = 0
    shard: int | None = None

    def to_json(self) -> dict[str, Any]:
        told = {
            "id": self.id,
            "key": self.key,
            "size": self.size,
            "metadata": base64.b64encode(self.metadata).decode(),
            "masks_applied": self.masks_applied,
        }
        return told if self.shard is None else told | {"shard": self.shard}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileMergeSpec:
    """All a profile merge needs to know.

    ``tenant`` is "" for segments. ``level`` is that of the sources. ``fence`` is the fencing token (a command index),
    mixed into the result ids, or None for the token-free ids of the format sheet. ``task_memory_bytes`` bounds what one
    dataset merge may hold; a larger dataset is cut by series. ``masks`` say which rows of which sources to leave out;
    ``is_rewrite`` that this is all the job is for: its results stay on the level of its sources. ``result_bytes_max``
    caps each result block (0: any size). ``shard`` is that of the results, and of every source that names no other.
    """

    job: str
    tenant: str
    shard: int
    level: int
    sources: tuple[SourceObject, ...]
    fence: int | None = None
    task_memory_bytes: int = 512 << 20
    masks: tuple[DeleteMask, ...] = ()
    is_rewrite: bool = False
    result_bytes_max: int = 0

    @property
    def result_level(self) -> int:
        return self.level if self.is_rewrite else self.level + 1

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "job": self.job,
            "tenant": self.tenant,
            "shard": self.shard,
            "level": self.level,
            "fence": self.fence,
            "task_memory_bytes": self.task_memory_bytes,
            "masks": [mask.to_json() for mask in self.masks],
            "is_rewrite": self.is_rewrite,
            "result_bytes_max": self.result_bytes_max,
            "sources": [source.to_json() for source in self.sources],
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
            masks=tuple(DeleteMask(**mask) for mask in data.get("masks", [])),
            is_rewrite=data.get("is_rewrite", False),
            result_bytes_max=data.get("result_bytes_max", 0),
            sources=tuple(
                SourceObject(
                    id=s["id"],
                    key=s["key"],
                    size=s["size"],
                    metadata=base64.b64decode(s["metadata"]),
                    masks_applied=s.get("masks_applied", 0),
                    shard=s.get("shard"),
                )
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
    """What a finished profile merge reports: which sources it merged, and the blocks that replace them.

    ``masks`` are the indexes of the delete commands in its specification: it left their rows out.
    """

    sources: tuple[str, ...]
    blocks: tuple[ResultBlock, ...]
    rows_read: int = 0
    rows_dropped: int = 0
    bytes_read: int = 0
    masks: tuple[int, ...] = ()

    def to_log(self) -> list[dict[str, Any]]:
        """Return what the command log keeps of each block."""
        return [{"id": b.id, "key": b.key, "size": b.size, "crc32c": b.crc32c} for b in self.blocks]

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
            "masks": list(self.masks),
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
            masks=tuple(data.get("masks", [])),
        )
