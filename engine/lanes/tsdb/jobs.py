"""Job specification and result of the tsdb lane (Prometheus blocks), and their JSON form."""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass
from typing import Any

from engine.core import block_ids

KIND = "tsdb"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFile:
    """A file of a block: its name inside the block (``index``, ``chunks/000001``) and its size in bytes.

    ``crc32c`` covers the whole file; None for files of other writers that were not read.
    """

    name: str
    size: int
    crc32c: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TsdbSource:
    """A block to merge: its files except ``meta.json``, and the unchanged content of that in ``meta``."""

    id: str
    level: int
    files: tuple[BlockFile, ...]
    meta: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TsdbMergeSpec:
    """The specification of a merge of Prometheus blocks.

    The blocks are in the bucket ``bucket_url`` with the keys ``<folder><id>/<file>``; ``folder`` is "" or ends with a
    slash. ``range_start_ms`` and ``range_end_ms`` (exclusive) bound the interval. The job writes partition
    ``partition`` of ``partitions``, the numbers of partitions by series hash. ``winner`` is the rule for conflicting
    samples. ``thanos`` is the result's section of that name in ``meta.json``, None for none. ``fence`` is the fencing
    token (a command index), part of the result's id. ``task_memory_bytes`` bounds the memory of the merge.
    """

    job: str
    tenant: str
    level: int
    bucket_url: str
    layout: str
    folder: str
    range_start_ms: int
    range_end_ms: int
    sources: tuple[TsdbSource, ...]
    partition: int = 0
    partitions: int = 1
    winner: str = "default"
    thanos: dict[str, Any] | None = None
    fence: int | None = None
    task_memory_bytes: int = 512 << 20

    def result_id(self) -> str:
        """Return the ULID of the block that this job writes with this fencing token."""
        sources = [(source.id, source.level) for source in self.sources]
        return block_ids.result_ids(sources, self.partitions, self.fence)[self.partition]

    def to_json(self) -> dict[str, Any]:
        plain = {"kind": KIND} | {name: getattr(self, name) for name in _PLAIN}
        return plain | {
            "sources": [
                {
                    "id": source.id,
                    "level": source.level,
                    "files": [asdict(file) for file in source.files],
                    "meta": base64.b64encode(source.meta).decode(),
                }
                for source in self.sources
            ]
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TsdbMergeSpec:
        return cls(
            **{name: data[name] for name in _PLAIN},
            sources=tuple(
                TsdbSource(
                    id=source["id"],
                    level=source["level"],
                    files=tuple(BlockFile(**file) for file in source["files"]),
                    meta=base64.b64decode(source["meta"]),
                )
                for source in data["sources"]
            ),
        )


_PLAIN = tuple(name for name in TsdbMergeSpec.__slots__ if name != "sources")
"""The fields that are JSON values as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBlock:
    """A block that a merge wrote and uploaded, except ``meta.json``, whose future content is ``meta``."""

    id: str
    files: tuple[BlockFile, ...]
    meta: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TsdbMergeResult:
    """The report of a finished merge: the ids of the merged blocks, and the written block.

    ``block`` is None if no sample was left.
    """

    sources: tuple[str, ...]
    block: WrittenBlock | None
    samples_read: int = 0
    samples_dropped: int = 0
    series_read: int = 0
    bytes_read: int = 0

    def to_log(self) -> list[dict[str, Any]]:
        """Return the entries of the command log."""
        return [] if self.block is None else [{"id": self.block.id, "size": sum(f.size for f in self.block.files)}]

    def to_json(self) -> dict[str, Any]:
        blocks = [] if self.block is None else [self.block]
        return {
            "kind": KIND,
            "sources": list(self.sources),
            "blocks": [
                {
                    "id": block.id,
                    "files": [asdict(file) for file in block.files],
                    "meta": base64.b64encode(block.meta).decode(),
                }
                for block in blocks
            ],
            "samples_read": self.samples_read,
            "samples_dropped": self.samples_dropped,
            "series_read": self.series_read,
            "bytes_read": self.bytes_read,
        }
