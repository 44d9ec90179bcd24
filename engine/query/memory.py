"""What questions take in memory: how much is expected of one before it begins, and what its share allows.

The factors were measured in processes of their own, on datasets that are nearly all symbols: those grow most.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.formats.profile_block.model import Labels
from engine.query.model import QueryBlock, QueryLimits

BASE_BYTES = 1 << 20
"""A question about next to nothing."""
DATASET_BYTES = 2 << 10
"""A dataset in the list that the index gives, with its block."""
UNDER_WAY_FACTOR = 32
"""So many times its size a dataset takes while it is read, decoded and added up."""
KEPT_FACTOR = 32
"""So many times its size a dataset may add to an answer."""
NODE_BYTES = 128
"""A node of a tree, with its columns and its part of the names."""
SHOWN_NODE_BYTES = 700
"""A node that is drawn and written as a message."""
POINT_BYTES = 256
SEEN_ROW_BYTES = 136
"""A row that is remembered because another block may have it too."""
LABEL_BYTES = 200
"""A label of a series that is listed, beside its letters."""


def datasets_max(limits: QueryLimits) -> int:
    """Return how many datasets the index may give for a question."""
    return min(limits.objects, 1 + limits.memory // 2 // DATASET_BYTES)


def expected_bytes(blocks: Iterable[QueryBlock], limits: QueryLimits) -> int:
    """Return what a question takes at most: by the sizes of its datasets, and never more than its share.

    A dataset that takes more than the share by itself is the exception: it is needed all the same.
    """
    sizes = [dataset.size for block in blocks for dataset in block.datasets]
    share = min(limits.memory, (UNDER_WAY_FACTOR + KEPT_FACTOR) * sum(sizes))
    largest = under_way_bytes(max(sizes, default=0))
    return BASE_BYTES + len(sizes) * DATASET_BYTES + max(share, largest)


def under_way_bytes(size: int) -> int:
    """Return what a dataset of so many bytes takes while it is read."""
    return UNDER_WAY_FACTOR * size


def under_way_max(limits: QueryLimits) -> int:
    """Return how many bytes may be under way for a question at once."""
    return limits.memory // 4


def nodes_max(limits: QueryLimits) -> int:
    """Return how many nodes the tree of an answer may have."""
    return limits.memory // 2 // NODE_BYTES


def points_max(limits: QueryLimits) -> int:
    """Return how many points the series of an answer may have together."""
    return limits.memory // 2 // POINT_BYTES


def seen_rows_max(limits: QueryLimits) -> int:
    """Return how many rows a question may remember."""
    return min(limits.rows, limits.memory // 4 // SEEN_ROW_BYTES)


def label_bytes_max(limits: QueryLimits) -> int:
    """Return how many bytes the labels of listed series may take (``labels_bytes``)."""
    return limits.memory // 4  # answers repeat them as messages


def labels_bytes(labels: Labels) -> int:
    """Return what the labels of a listed series take."""
    return LABEL_BYTES + sum(LABEL_BYTES + len(name) + len(value) for name, value in labels)
