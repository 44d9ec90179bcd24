"""Lineage in the bucket: ``lineage/<shard>/<digest>.json`` says which blocks one job replaced, and by which.

A record is written after the job's swap is committed and before the first of its sources' objects is deleted. So who
has only the bucket knows: the sources in a record are replaced; and where there is no record all sources still exist.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

from engine.errors import LithifyError
from engine.profiles import ulids
from engine.profiles.errors import BadObject
from engine.storage.model import ObjectStore

LINEAGE = "lineage"
FORMAT_VERSION = 1
RECORD_BYTES_MAX = 1 << 20
"""Ids of a thousand sources and a thousand results take 60 kB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageRecord:
    """Blocks ``sources`` of one shard were replaced by ``results``, in command ``command_index`` of some index."""

    shard: int
    command_index: int
    sources: tuple[str, ...]
    results: tuple[str, ...]

    def encode(self) -> bytes:
        """Return the object's bytes."""
        document = {
            "version": FORMAT_VERSION,
            "shard": self.shard,
            "command_index": self.command_index,
            "sources": list(self.sources),
            "results": list(self.results),
        }
        return json.dumps(document).encode()

    @property
    def key(self) -> str:
        """Return the record's key: the same record always has the same."""
        return f"{LINEAGE}/{self.shard}/{hashlib.sha256(self.encode()).hexdigest()[:32]}.json"


def read_records(store: ObjectStore) -> Iterator[tuple[str, LineageRecord | LithifyError]]:
    """Yield every record of the bucket under its key, or why it cannot be read."""
    for info in store.list(f"{LINEAGE}/"):
        try:
            if info.size > RECORD_BYTES_MAX:
                raise BadObject(LINEAGE, 0, f"a record of {info.size} bytes", info.key)
            yield info.key, decode_record(info.key, store.get(info.key))
        except LithifyError as error:
            yield info.key, error


def decode_record(key: str, data: bytes) -> LineageRecord:
    """Decode a record; BadObject naming its key if it is none."""
    try:
        document = json.loads(data)
        if document["version"] != FORMAT_VERSION:
            raise BadObject(LINEAGE, 0, f"version {document['version']!r} is not known", key)
        record = LineageRecord(
            shard=int(document["shard"]),
            command_index=int(document["command_index"]),
            sources=tuple(document["sources"]),
            results=tuple(document["results"]),
        )
        for block_id in (*record.sources, *record.results):
            ulids.parse(block_id)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadObject(LINEAGE, 0, f"not a lineage record: {error!r}", key) from error
    return record
