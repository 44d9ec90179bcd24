"""Partitions of series by the hash of their labels, so that partitions of different counts nest."""

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
    """Return for each of the partitions which series of a batch belong to it."""
    hashes = hash_series(batch, symbols)
    return [hashes % np.uint64(each.count) == np.uint64(each.index) for each in partitions]


def claimed_partition(meta: BlockMeta) -> Partition:
    """Return the partition that a block claims to be. Raises BadObject if the claim is invalid."""
    place = origin(meta).place
    return Partition(place.partition, place.partitions) if place else Partition()


def check_partition_members(batch: SeriesBatch, belongs: Chosen, claimed: Partition) -> None:
    """Raise Inconsistent if a series does not belong to the partition that its block claims to be.

    Merges of other partitions do not read the block, so the series would be lost.
    """
    if not np.all(belongs):
        at = SERIES_ALIGNMENT * int(batch.ids[int(np.argmin(belongs))])
        reason = (
            f"a series does not belong to partition {claimed.index} of {claimed.count}, which the block claims to be"
        )
        raise Inconsistent(SECTION, at, reason)
