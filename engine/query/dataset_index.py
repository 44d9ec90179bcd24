"""The visible series of a tenant's dataset index: those that no delete request removes completely.

A dataset index maps series to datasets, so that a reader opens only the matching ones. It must not reveal deleted data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.formats.profile_block.model import IndexedSeries
from engine.lanes.profiles.jobs import DeleteMask
from engine.lanes.profiles.merge.masks import covers_series


def visible_series(index: Iterable[IndexedSeries], datasets: Mapping[int, Sequence[DeleteMask]]) -> list[IndexedSeries]:
    """Return the visible series; ``position`` is that of a dataset.

    ``datasets`` maps the positions of visible datasets to their masks. A series that is only partly removed by a mask
    is included; its rows are filtered when they are read.
    """
    return [
        entry
        for entry in index
        if (masks := datasets.get(entry.position)) is not None and not any(covers_series(mask, entry) for mask in masks)
    ]
