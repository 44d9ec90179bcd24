"""The job specification and result of the profiles lane, and their JSON form."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

KIND = "profiles"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteMask:
    """Rows that a merge removes: rows of a tenant and service ("": any) in series that the selector matches.

    ``index`` is the command index of the delete request: the mask applies to sources that do not obey it yet. Times are
    row times in unix milliseconds, ``[from_ms, until_ms)``; None is unbounded.
    """

    index: int
    tenant: str
    service: str = ""
    selector: str = ""
    from_ms: int | None = None
    until_ms: int | None = None

    @property
    def is_total(self) -> bool:
        """Return whether the mask removes all data of its service."""
        return not self.selector and self.from_ms is None and self.until_ms is None

    def takes_all(self, min_time_ms: int, max_time_ms: int) -> bool:
        """Return whether the mask removes a matching dataset with data in this time range completely."""
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
    """A source of a merge.

    ``metadata`` is the protobuf BlockMeta from the index; it is needed because segments of old writers have no footer.
    The bytes obey delete commands up to ``masks_applied``. ``shard`` is set if it differs from the job's shard: the
    sources of a consolidation are in several shards.
    """

    id: str
    key: str
    size: int
    metadata: bytes
    masks_applied: int = 0
    shard: int | None = None

    def to_json(self) -> dict[str, Any]:
        data = {
            "id": self.id,
            "key": self.key,
            "size": self.size,
            "metadata": base64.b64encode(self.metadata).decode(),
            "masks_applied": self.masks_applied,
        }
        return data if self.shard is None else data | {"shard": self.shard}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileMergeSpec:
    """The specification of a profile merge.

    ``tenant`` is "" for segments. ``level`` is the level of the sources. ``fence`` is the fencing token (a command
    index), mixed into the result ids, or None for the ids of ``docs/reference/profile-compaction.md``.
    ``task_memory_bytes`` limits the memory of one dataset merge; a larger dataset is split by series. ``masks`` select
    the rows to remove. ``is_rewrite``: the job only applies masks, and its results stay on the level of the sources.
    ``result_bytes_max`` caps each result block (0: unlimited). ``shard`` is the shard of the results, and of every
    source without a shard of its own.
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
    """A block that a merge wrote. ``metadata`` is its BlockMeta without ``size``; ``crc32c`` covers the object."""

    id: str
    key: str
    size: int
    crc32c: int
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileMergeResult:
    """The result of a profile merge: the ids of its sources and the blocks that replace them.

    ``masks`` holds the indexes of the delete commands whose rows it removed.
    """

    sources: tuple[str, ...]
    blocks: tuple[ResultBlock, ...]
    rows_read: int = 0
    rows_dropped: int = 0
    bytes_read: int = 0
    masks: tuple[int, ...] = ()

    def to_log(self) -> list[dict[str, Any]]:
        """Return the command log's entry for each block."""
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
