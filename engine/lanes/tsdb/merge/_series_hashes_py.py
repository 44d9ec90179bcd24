"""Pure Python reference implementation of the hashes of series."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import xxhash

from engine.core.errors import LimitExceeded
from engine.formats.prometheus.index.index_layout import LABEL_BYTES_MAX, SECTION
from engine.formats.prometheus.index.series_batch import SeriesBatch
from engine.formats.prometheus.index.symbol_table import SymbolTable

SEPARATOR = b"\xff"


def hash_series(batch: SeriesBatch, symbols: SymbolTable) -> npt.NDArray[np.uint64]:
    """Return the XXH64 of each series' label names and values, each followed by a byte 0xFF."""
    hashes = []
    for position in range(len(batch.ids)):
        hashed = bytearray()
        for ref in batch.label_refs_of(position):
            hashed += symbols[ref] + SEPARATOR
            if len(hashed) > LABEL_BYTES_MAX:
                raise LimitExceeded(SECTION, 16 * int(batch.ids[position]), "the labels of a series are too long")
        hashes.append(xxhash.xxh64_intdigest(bytes(hashed)))
    return np.array(hashes, np.uint64)
