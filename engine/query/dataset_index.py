"""What a tenant's dataset index may still tell: the series of its datasets, without those that delete requests name.

An index says which series are in which dataset, so that a reader opens only those; what is hidden from answers must not
be told by it either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.formats.profile_block.model import IndexedSeries
from engine.lanes.profiles.jobs import DeleteMask
from engine.lanes.profiles.merge.masks import covers_series


def visible_series(index: Iterable[IndexedSeries], datasets: Mapping[int, Sequence[DeleteMask]]) -> list[IndexedSeries]:
    """Return the series that readers may know of; ``position`` is a dataset's.

    ``datasets`` has the positions of the datasets that the block's index shows, each with its masks. A series of which
    a mask takes only a part stays: which of its rows are gone is told by the rows.
    """
    return [
        entry
        for entry in index
        if (masks := datasets.get(entry.position)) is not None and not any(covers_series(mask, entry) for mask in masks)
    ]
