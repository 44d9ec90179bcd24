"""Reference implementation of the writer of postings lists in pure Python."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import numpy.typing as npt

from engine.core.binary import encode_uvarint
from engine.core.checksums import crc32c
from engine.formats.prometheus.index.index_layout import CRC_BYTES, LIST_ALIGNMENT, POSTINGS_ENTRY_KEYS
from engine.formats.prometheus.index.symbol_table import SymbolTable


def format_lists(
    position: int,
    pairs: npt.NDArray[np.uint64],
    counts: npt.NDArray[np.uint32],
    places: npt.NDArray[np.int64],
    ids: bytes,
    symbols: SymbolTable,
    most_bytes: int,
) -> tuple[bytes, bytes, int, int]:
    """Return padded lists for ``position`` of the index, their table entries, and the numbers of lists and of pieces.

    Stops after the list whose entry brings the table to ``most_bytes``. Ids are given in pieces: ``counts`` ids of four
    bytes each at ``places`` in ``ids``. Consecutive pieces with equal pairs (name in the upper, value in the lower
    half) make one list.
    """
    out, table, lists, done = bytearray(), bytearray(), 0, 0
    pieces = zip(pairs.tolist(), counts.tolist(), places.tolist(), strict=True)
    for pair, members in groupby(pieces, key=lambda piece: piece[0]):
        if lists and len(table) >= most_bytes:
            break
        parts = [_piece(ids, place, count) for _, count, place in members]
        done += len(parts)
        body = b"".join(parts)
        body = (len(body) // 4).to_bytes(4, "big") + body
        out += bytes(-(position + len(out)) % LIST_ALIGNMENT)
        texts = b"".join(encode_uvarint(len(text)) + text for text in (symbols[pair >> 32], symbols[pair & 0xFFFFFFFF]))
        table += bytes([POSTINGS_ENTRY_KEYS]) + texts + encode_uvarint(position + len(out))
        out += len(body).to_bytes(4, "big") + body + crc32c(body).to_bytes(CRC_BYTES, "big")
        lists += 1
    return bytes(out), bytes(table), lists, done


def grouped_ids(
    pairs: npt.NDArray[np.uint64], ids: npt.NDArray[np.uint32]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32], bytes]:
    """Return the distinct ascending pairs, their numbers of ids, and the ids in stable order, four bytes each."""
    if len(ids) != len(pairs):
        raise ValueError("expected as many ids as pairs")
    found, counts = np.unique(pairs, return_counts=True)
    by_pair = ids[np.argsort(pairs, kind="stable")]
    return found, counts.astype(np.uint32), by_pair.astype(">u4").tobytes()


def _piece(ids: bytes, place: int, count: int) -> bytes:
    piece = ids[place : place + 4 * count]
    if place < 0 or len(piece) != 4 * count:
        raise ValueError("a piece of a list is outside of the ids")
    return piece
