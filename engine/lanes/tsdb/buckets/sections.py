"""The ``thanos`` object of a result's ``meta.json``: what others in the bucket need to know beyond the block itself.

It is made in two halves. Whoever plans knows labels and place (``result_section``); whoever merged knows files and
sizes (``completed_section``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from engine.core.errors import BadObject, MergeRefused
from engine.formats.prometheus.meta import BlockMeta
from engine.formats.prometheus.model import INT64_MAX
from engine.lanes.tsdb.buckets.labels import resolution_ms
from engine.lanes.tsdb.buckets.layout import META, Layout
from engine.lanes.tsdb.jobs import BlockFile

SOURCE = "compactor"
CHUNKS = "chunks/"
PARTITIONS_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlace:
    """Which part of which group a block is, as Cortex tells it; ``created_s`` is when the group was (unix seconds)."""

    group_id: int
    partition: int
    partitions: int
    created_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a block says it came from: the part of a group, and the length of that group's interval (0: untold)."""

    place: PartitionPlace | None = None
    range_ms: int = 0


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


def origin(meta: BlockMeta) -> Origin:
    """Return what a block's ``meta.json`` says of its group; BadObject if that cannot be."""
    extensions = (meta.thanos or {}).get("extensions")
    if not isinstance(extensions, dict):
        return Origin()  # Free JSON: somebody else's is nothing to us.
    return Origin(
        place=_place(extensions.get("partition_info")),
        range_ms=_whole(extensions.get("time_range", 0), "time_range", INT64_MAX),
    )


def _place(info: object) -> PartitionPlace | None:
    if not isinstance(info, dict):
        return None
    place = PartitionPlace(
        group_id=_whole(info.get("partitioned_group_id", 0), "partitioned_group_id", (1 << 32) - 1),
        partition=_whole(info.get("partition_id"), "partition_id", INT64_MAX),
        partitions=_whole(info.get("partition_count"), "partition_count", PARTITIONS_MAX),
        created_s=_whole(info.get("partitioned_group_creation_time", 0), "partitioned_group_creation_time", INT64_MAX),
    )
    if place.partition >= place.partitions:
        raise BadObject(META, -1, f"thanos.extensions: partition {place.partition} of {place.partitions}")
    return place


def _whole(value: object, name: str, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= high:
        raise BadObject(META, -1, f"thanos.extensions: {name} is not a whole number from 0 to {high}")
    return value
