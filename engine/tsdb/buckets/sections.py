"""The ``thanos`` object of a result's ``meta.json``: what others in the bucket need to know beyond the block itself.

It is made in two halves. Whoever plans knows labels and place (``result_section``); whoever merged knows files and
sizes (``completed_section``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from engine.profiles.errors import MergeRefused
from engine.protocol.tsdb_jobs import BlockFile
from engine.tsdb.buckets.labels import resolution_ms
from engine.tsdb.buckets.layout import META, Layout
from engine.tsdb.meta import BlockMeta

SOURCE = "compactor"
CHUNKS = "chunks/"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlace:
    """Which part of which group a block is, as Cortex tells it; ``created_s`` is when the group was (unix seconds)."""

    group_id: int
    partition: int
    partitions: int
    created_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStats:
    """The largest series entry and the largest chunk of a block, in bytes: how much a reader fetches ahead."""

    series_max_size: int
    chunk_max_size: int


def result_section(
    layout: Layout, sources: Sequence[BlockMeta], *, range_ms: int = 0, place: PartitionPlace | None = None
) -> dict[str, object]:
    """Return what is known of a result before its merge; MergeRefused unless the sources may be merged.

    ``range_ms`` is the length of the interval that the group fills (0: not told); it and ``place`` are Cortex' own.
    """
    if len({layout.group_key(meta) for meta in sources}) != 1:
        raise MergeRefused("the sources have not one set of external labels and one resolution")
    section: dict[str, object] = {
        "version": 1,
        "labels": layout.labels(sources[0]),
        "downsample": {"resolution": resolution_ms(sources[0])},
        "source": SOURCE,
    }
    extensions: dict[str, object] = {}
    if place:
        extensions["partition_info"] = {
            "partitioned_group_id": place.group_id,
            "partition_count": place.partitions,
            "partition_id": place.partition,
            "partitioned_group_creation_time": place.created_s,
        }
    if range_ms:
        extensions["time_range"] = range_ms
    return section | ({"extensions": extensions} if extensions else {})


def completed_section(
    section: dict[str, object], files: Sequence[BlockFile], *, stats: IndexStats | None, uploaded_at_s: float
) -> dict[str, object]:
    """Return ``section`` with what a merge found out: its files, sizes, and when they were uploaded (unix seconds)."""
    listed: list[dict[str, object]] = [{"rel_path": file.name, "size_bytes": file.size} for file in files]
    listed.append({"rel_path": META})  # Its size would change by being told.
    told: dict[str, object] = {
        "segment_files": sorted(file.name.removeprefix(CHUNKS) for file in files if file.name.startswith(CHUNKS)),
        "files": sorted(listed, key=lambda file: str(file["rel_path"])),
        "upload_time": datetime.fromtimestamp(int(uploaded_at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if stats:
        told["index_stats"] = {"series_max_size": stats.series_max_size, "chunk_max_size": stats.chunk_max_size}
    return section | told
