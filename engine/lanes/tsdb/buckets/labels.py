"""The external labels of blocks, and the key of blocks that may be merged with each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import xxhash

from engine.core.errors import BadObject
from engine.formats.prometheus.meta import SECTION, BlockMeta

RAW_RESOLUTION_MS = 0


def external_labels(meta: BlockMeta) -> dict[str, str]:
    """Return the labels that all series of a block share, sorted; BadObject if they are no labels."""
    labels = (meta.thanos or {}).get("labels")
    if labels is None:
        return {}
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise BadObject(SECTION, -1, "thanos.labels is not an object of strings")
    return dict(sorted(labels.items(), key=lambda label: label[0].encode()))


def resolution_ms(meta: BlockMeta) -> int:
    """Return the milliseconds between downsampled samples, 0 for raw ones."""
    downsample = (meta.thanos or {}).get("downsample")
    if downsample is None:
        return RAW_RESOLUTION_MS
    resolution = downsample.get("resolution", RAW_RESOLUTION_MS) if isinstance(downsample, dict) else None
    if not isinstance(resolution, int) or isinstance(resolution, bool) or resolution < 0:
        raise BadObject(SECTION, -1, "thanos.downsample.resolution is not a number of milliseconds")
    return resolution


def without(labels: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return the labels but those of these names."""
    dropped = frozenset(names)
    return {name: value for name, value in labels.items() if name not in dropped}


def labels_hash(labels: Mapping[str, str]) -> int:
    """Return the hash by which Thanos and Cortex know a set of labels."""
    pairs = sorted((name.encode(), value.encode()) for name, value in labels.items())
    return xxhash.xxh64_intdigest(b"".join(name + b"\xff" + value + b"\xff" for name, value in pairs))


def group_key(labels: Mapping[str, str], resolution: int) -> str:
    """Return what is equal for blocks that may be merged, as Thanos and Cortex write it."""
    return f"{resolution}@{labels_hash(labels)}"
