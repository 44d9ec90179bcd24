"""The ``thanos`` object of a result's ``meta.json``, which other readers of the bucket use.

The planner knows labels and partition (``result_section``), the merge adds files and sizes (``completed_section``).
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
    """The partition of a group that a block is, as Cortex records it; ``created_s`` is the group's creation time."""

    group_id: int
    partition: int
    partitions: int
    created_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A block's recorded origin: its partition of a group, and the length of the group's interval (0 if unknown)."""

    place: PartitionPlace | None = None
    range_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStats:
    """The largest series entry and the largest chunk of a block in bytes, for the read-ahead of readers."""

    series_max_size: int
    chunk_max_size: int


def result_section(
    layout: Layout, sources: Sequence[BlockMeta], *, range_ms: int = 0, place: PartitionPlace | None = None
) -> dict[str, object]:
    """Return the part of the section that is known before the merge.

    ``range_ms`` is the length of the group's interval (0: omitted); it and ``place`` are Cortex extensions. Raises
    MergeRefused unless the sources share one group key.
    """
    if len({layout.group_key(meta) for meta in sources}) != 1:
        raise MergeRefused("the sources differ in external labels or resolution")
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
    """Return ``section`` completed with files, sizes, and the upload time (Unix seconds)."""
    listed: list[dict[str, object]] = [{"rel_path": file.name, "size_bytes": file.size} for file in files]
    listed.append({"rel_path": META})  # Without a size, which would depend on itself.
    completed: dict[str, object] = {
        "segment_files": sorted(file.name.removeprefix(CHUNKS) for file in files if file.name.startswith(CHUNKS)),
        "files": sorted(listed, key=lambda file: str(file["rel_path"])),
        "upload_time": datetime.fromtimestamp(int(uploaded_at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if stats:
        completed["index_stats"] = {"series_max_size": stats.series_max_size, "chunk_max_size": stats.chunk_max_size}
    return section | completed


def origin(meta: BlockMeta) -> Origin:
    """Return the origin recorded in a block's ``meta.json``. Raises BadObject if it is invalid."""
    extensions = (meta.thanos or {}).get("extensions")
    if not isinstance(extensions, dict):
        return Origin()  # Extensions are free-form; foreign ones are ignored.
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
