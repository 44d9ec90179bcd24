"""Which series belong to a part of a merge: by the hash of their labels, so that parts of any number nest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import xxhash

from engine.tsdb.merge_model import Partition
from engine.tsdb.series_batch import SeriesBatch
from engine.tsdb.symbol_table import SymbolTable

SEPARATOR = b"\xff"


def series_in_partition(batch: SeriesBatch, symbols: SymbolTable, partition: Partition) -> npt.NDArray[np.bool_]:
    """Say of each series of a batch whether it belongs to a partition.

    The hash is XXH64 of its names and values, each with a byte 0xFF behind it.
    """
    texts = {number: symbols[number] for number in np.unique(batch.label_refs).tolist()}
    found = np.zeros(len(batch.ids), np.bool_)
    for position in range(len(batch.ids)):
        hashed = b"".join(texts[ref] + SEPARATOR for ref in batch.label_refs_of(position))
        found[position] = xxhash.xxh64_intdigest(hashed) % partition.count == partition.index
    return found
