"""External labels of blocks, and the group key of blocks that may be merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import xxhash

from engine.core.errors import BadObject
from engine.formats.prometheus.meta import SECTION, BlockMeta

RAW_RESOLUTION_MS = 0


def external_labels(meta: BlockMeta) -> dict[str, str]:
    """Return the external labels of a block, sorted. Raises BadObject if they are invalid."""
    labels = (meta.thanos or {}).get("labels")
    if labels is None:
        return {}
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise BadObject(SECTION, -1, "thanos.labels is not an object of strings")
    return dict(sorted(labels.items(), key=lambda label: label[0].encode()))


def resolution_ms(meta: BlockMeta) -> int:
    """Return the milliseconds between downsampled samples, 0 for raw ones. Raises BadObject if the value is invalid."""
    downsample = (meta.thanos or {}).get("downsample")
    if downsample is None:
        return RAW_RESOLUTION_MS
    resolution = downsample.get("resolution", RAW_RESOLUTION_MS) if isinstance(downsample, dict) else None
    if not isinstance(resolution, int) or isinstance(resolution, bool) or resolution < 0:
        raise BadObject(SECTION, -1, "thanos.downsample.resolution is not a number of milliseconds")
    return resolution


def drop_labels(labels: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return the labels without those of these names."""
    dropped = frozenset(names)
    return {name: value for name, value in labels.items() if name not in dropped}


def labels_hash(labels: Mapping[str, str]) -> int:
    """Return the hash that Thanos and Cortex use for a set of labels."""
    pairs = sorted((name.encode(), value.encode()) for name, value in labels.items())
    return xxhash.xxh64_intdigest(b"".join(name + b"\xff" + value + b"\xff" for name, value in pairs))


def group_key(labels: Mapping[str, str], resolution: int) -> str:
    """Return the group key of blocks with these labels and resolution (ms), in the format of Thanos and Cortex."""
    return f"{resolution}@{labels_hash(labels)}"
