"""Which series belong to a part of a merge: by the hash of their labels, so that parts of any number nest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.tsdb.merge_model import Partition
from engine.tsdb.series_batch import SeriesBatch
from engine.tsdb.series_hashes import hash_series
from engine.tsdb.symbol_table import SymbolTable


def series_in_partition(batch: SeriesBatch, symbols: SymbolTable, partition: Partition) -> npt.NDArray[np.bool_]:
    """Say of each series of a batch whether it belongs to a partition."""
    left = hash_series(batch, symbols) % np.uint64(partition.count)
    return np.asarray(left == np.uint64(partition.index), np.bool_)
