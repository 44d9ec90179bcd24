"""Columns of a block's row that are derived from its ``meta.json`` and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from engine.formats.prometheus.meta import BlockMeta
from engine.lanes.tsdb.buckets.sections import origin
from engine.lanes.tsdb.jobs import BlockFile

INDEX = "index"


def block_columns(meta: BlockMeta, files: Sequence[BlockFile], meta_bytes: bytes) -> dict[str, Any]:
    """Return the columns of a block's row that describe the block itself.

    Raises BadObject if the interval or the partition in ``meta`` is out of bounds. Scans and the verification of
    results reject such blocks before.
    """
    found = origin(meta)
    index_bytes = next((file.size for file in files if file.name == INDEX), None)
    return {
        "min_time_ms": meta.min_time_ms,
        "max_time_ms": meta.max_time_ms,
        "level": meta.compaction.level,
        "series": meta.stats.num_series,
        "samples": meta.stats.num_samples,
        "tombstones": meta.stats.num_tombstones,
        "size_bytes": sum(file.size for file in files),
        "index_bytes": index_bytes,
        "partition": found.place.partition if found.place else 0,
        "partitions": found.place.partitions if found.place else 1,
        "produced_by": found.place.group_id if found.place else None,
        "time_range_ms": found.range_ms or None,
        "origins": list(meta.compaction.sources),
        "hints": list(meta.compaction.hints),
        "is_failed": meta.compaction.failed,
        "files": [asdict(file) for file in files],
        "meta": meta_bytes,
    }
