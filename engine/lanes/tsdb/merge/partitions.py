"""Which series belong to a part of a merge: by the hash of their labels, so that parts of any number nest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.formats.prometheus.errors import Inconsistent
from engine.formats.prometheus.index.index_layout import SECTION, SERIES_ALIGNMENT
from engine.formats.prometheus.index.series_batch import SeriesBatch
from engine.formats.prometheus.index.symbol_table import SymbolTable
from engine.formats.prometheus.meta import BlockMeta
from engine.lanes.tsdb.buckets.sections import origin
from engine.lanes.tsdb.merge.merge_model import Partition
from engine.lanes.tsdb.merge.series_hashes import hash_series

Chosen = npt.NDArray[np.bool_]


def series_in_partition(batch: SeriesBatch, symbols: SymbolTable, *partitions: Partition) -> list[Chosen]:
    """Say of each series of a batch whether it belongs to a partition, for each of these."""
    hashes = hash_series(batch, symbols)
    return [hashes % np.uint64(each.count) == np.uint64(each.index) for each in partitions]


def claimed_partition(meta: BlockMeta) -> Partition:
    """Return which series a block says it has; BadObject if that cannot be."""
    place = origin(meta).place
    return Partition(place.partition, place.partitions) if place else Partition()


def refuse_strangers(batch: SeriesBatch, belongs: Chosen, claimed: Partition) -> None:
    """Raise Inconsistent for a series that does not belong to what its block says it is a part of.

    Whoever merges another part would not look for it there, and it would be lost.
    """
    if not np.all(belongs):
        at = SERIES_ALIGNMENT * int(batch.ids[int(np.argmin(belongs))])
        reason = f"a series does not belong to part {claimed.index} of {claimed.count}, which the block says it is"
        raise Inconsistent(SECTION, at, reason)
