"""Memory of queries: the estimate before a query starts, and the limits that follow from its share.

The factors were measured in separate processes on datasets that consist mostly of symbols, which expand most.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.formats.profile_block.model import Labels
from engine.query.model import QueryBlock, QueryLimits

BASE_BYTES = 1 << 20
"""Memory of an empty query."""
DATASET_BYTES = 2 << 10
"""Memory of a dataset in the list of blocks from the index."""
UNDER_WAY_FACTOR = 32
"""Memory per byte of a dataset while it is read, decoded and aggregated."""
KEPT_FACTOR = 32
"""Maximum memory of an answer per byte of a dataset."""
NODE_BYTES = 128
"""Memory of a tree node, with its columns and its share of the names."""
SHOWN_NODE_BYTES = 700
"""Memory of a node that is rendered and encoded as a message."""
POINT_BYTES = 256
SEEN_ROW_BYTES = 136
"""Memory of a row remembered for deduplication."""
LABEL_BYTES = 200
"""Memory overhead of a label of a listed series."""


def datasets_max(limits: QueryLimits) -> int:
    """Return the maximum number of datasets of a query."""
    return min(limits.objects, 1 + limits.memory // 2 // DATASET_BYTES)


def expected_bytes(blocks: Iterable[QueryBlock], limits: QueryLimits) -> int:
    """Return the maximum memory of a query: by the sizes of its datasets, at most its share.

    A single dataset that needs more than the share is counted in full.
    """
    sizes = [dataset.size for block in blocks for dataset in block.datasets]
    share = min(limits.memory, (UNDER_WAY_FACTOR + KEPT_FACTOR) * sum(sizes))
    largest = under_way_bytes(max(sizes, default=0))
    return BASE_BYTES + len(sizes) * DATASET_BYTES + max(share, largest)


def under_way_bytes(size: int) -> int:
    """Return the memory of a dataset of ``size`` bytes while it is read."""
    return UNDER_WAY_FACTOR * size


def under_way_max(limits: QueryLimits) -> int:
    """Return the maximum memory of datasets of a query that are read at once."""
    return limits.memory // 4


def nodes_max(limits: QueryLimits) -> int:
    """Return the maximum number of nodes of a tree."""
    return limits.memory // 2 // NODE_BYTES


def points_max(limits: QueryLimits) -> int:
    """Return the maximum number of points of all series."""
    return limits.memory // 2 // POINT_BYTES


def seen_rows_max(limits: QueryLimits) -> int:
    """Return the maximum number of rows remembered for deduplication."""
    return min(limits.rows, limits.memory // 4 // SEEN_ROW_BYTES)


def label_bytes_max(limits: QueryLimits) -> int:
    """Return the maximum memory of the labels of listed series (``labels_bytes``)."""
    return limits.memory // 4  # answers repeat them as messages


def labels_bytes(labels: Labels) -> int:
    """Return the memory of the labels of a listed series."""
    return LABEL_BYTES + sum(LABEL_BYTES + len(name) + len(value) for name, value in labels)
