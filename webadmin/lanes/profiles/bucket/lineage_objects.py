"""Lineage in the bucket: ``lineage/<shard>/<digest>.json`` names the blocks that a command replaced, and their results.

A record is written after its command is committed and before the first of its sources' objects is deleted. So the
bucket alone is sufficient: the sources in a record are replaced or removed; without a record all sources still exist. A
record without results is a removal; one without sources names foreign blocks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.core import ulids
from engine.core.errors import BadObject, LithifyError
from engine.formats.profile_block.container.object_names import SHARD_MAX
from engine.protocol.fields import COUNT_MAX
from engine.storage.model import ObjectStore

LINEAGE = "lineage"
FORMAT_VERSION = 2
RECORD_BYTES_MAX = 4 << 20
"""Names of a thousand sources and ten thousand results take half a megabyte."""
LEVEL_UNKNOWN = -1

BlockName = tuple[int, str]
"""Shard and id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageRecord:
    """Blocks ``sources``, all of ``level``, were replaced by ``results`` in command ``command_index`` of an index."""

    command_index: int
    level: int
    sources: tuple[BlockName, ...]
    results: tuple[BlockName, ...]

    @property
    def shards(self) -> frozenset[int]:
        """Return the shards of its blocks."""
        return frozenset(shard for shard, _ in (*self.sources, *self.results))

    def encode(self) -> bytes:
        """Return the bytes of the object."""
        document = {
            "version": FORMAT_VERSION,
            "command_index": self.command_index,
            "level": self.level,
            "sources": [list(name) for name in self.sources],
            "results": [list(name) for name in self.results],
        }
        return json.dumps(document).encode()

    @property
    def key(self) -> str:
        """Return the key of the record; it depends only on the content."""
        shard = (*self.sources, *self.results)[0][0]
        return f"{LINEAGE}/{shard}/{hashlib.sha256(self.encode()).hexdigest()[:32]}.json"


def read_records(store: ObjectStore) -> Iterator[tuple[str, LineageRecord | LithifyError]]:
    """Yield every record of the bucket with its key, or the error of reading it."""
    for info in store.list(f"{LINEAGE}/"):
        try:
            if info.size > RECORD_BYTES_MAX:
                raise BadObject(LINEAGE, 0, f"a record of {info.size} bytes", info.key)
            yield info.key, decode_record(info.key, store.get(info.key))
        except LithifyError as error:
            yield info.key, error


def decode_record(key: str, data: bytes) -> LineageRecord:
    """Return a record of the current or the previous format. Raises BadObject naming the key."""
    try:
        document = json.loads(data)
        if document["version"] == 1:  # one shard for all blocks, and no level
            shard = document["shard"]
            names = {part: [(shard, block_id) for block_id in document[part]] for part in ("sources", "results")}
            level = LEVEL_UNKNOWN
        elif document["version"] == FORMAT_VERSION:
            names = {part: document[part] for part in ("sources", "results")}
            level = document["level"]
        else:
            raise BadObject(LINEAGE, 0, f"version {document['version']!r} is not known", key)
        return LineageRecord(
            command_index=_number(document["command_index"], 0, COUNT_MAX),
            level=_number(level, LEVEL_UNKNOWN, 1000),
            sources=tuple(_name(name) for name in names["sources"]),
            results=tuple(_name(name) for name in names["results"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError, LithifyError) as error:
        if isinstance(error, BadObject):
            raise
        raise BadObject(LINEAGE, 0, f"not a lineage record: {error!r}", key) from error


def _name(value: Any) -> BlockName:
    shard, block_id = value
    if not isinstance(block_id, str):
        raise TypeError(f"{block_id!r} is no id")
    ulids.parse(block_id)
    return _number(shard, 0, SHARD_MAX), block_id


def _number(value: Any, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{value!r} is not a whole number from {low} to {high}")
    return value
