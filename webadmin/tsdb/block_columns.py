"""What a block's row says of its ``meta.json`` and files; extensions of other systems count where they make sense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from engine.protocol.tsdb_jobs import BlockFile
from engine.tsdb.meta import BlockMeta

INDEX = "index"
PARTITIONS_MAX = 1 << 31


def block_columns(meta: BlockMeta, files: Sequence[BlockFile], meta_bytes: bytes) -> dict[str, Any]:
    """Return the columns of a block's row that describe the block itself."""
    extensions = _mapping((meta.thanos or {}).get("extensions"))
    place = _mapping(extensions.get("partition_info"))
    count, number = _count(place.get("partition_count")), _count(place.get("partition_id"))
    is_part = count is not None and number is not None and 0 < count < PARTITIONS_MAX and number < count
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
        "partition": number if is_part else 0,
        "partitions": count if is_part else 1,
        "produced_by": _count(place.get("partitioned_group_id")) if is_part else None,
        "time_range_ms": _count(extensions.get("time_range")) or None,
        "origins": list(meta.compaction.sources),
        "hints": list(meta.compaction.hints),
        "is_failed": meta.compaction.failed,
        "files": [asdict(file) for file in files],
        "meta": meta_bytes,
    }


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
    return value if is_number else None  # type: ignore[return-value]
