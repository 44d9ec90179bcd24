"""The digests that the known answers give for a block: labels, samples, layout of chunks."""

from __future__ import annotations

import hashlib
import struct

import numpy as np

from engine.formats.prometheus.block_reader import BlockReader
from engine.formats.prometheus.model import ENCODING_XOR, Labels


def _label_bytes(labels: Labels) -> bytes:
    parts = [struct.pack(">I", len(labels))]
    parts += [struct.pack(">I", len(text)) + text for pair in labels for text in pair]
    return b"".join(parts)


def digests(block: BlockReader) -> dict[str, str]:
    """Return the three digests of a block by the names they have in the known answers."""
    hashed_labels, hashed_samples, hashed_layout = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
    for series in block.index.series():
        labels = _label_bytes(series.labels)
        items, count = [], 0
        for meta in series.chunks:
            chunk = block.chunk(meta)
            hashed_layout.update(struct.pack(">qqIB", *meta[:2], chunk.sample_count, chunk.encoding))
            if chunk.encoding == ENCODING_XOR:
                times, values = block.floats(meta, chunk)
                items.append(np.stack([times.view(np.uint64), values], axis=1).astype(">u8").tobytes())
                count += len(times)
            else:
                items.append(b"H" + bytes([chunk.encoding]) + chunk.data)
                count += 1
        hashed_labels.update(labels)
        hashed_samples.update(labels + struct.pack(">I", count) + b"".join(items))
    return {
        "labels_sha256": hashed_labels.hexdigest(),
        "samples_sha256": hashed_samples.hexdigest(),
        "chunk_layout_sha256": hashed_layout.hexdigest(),
    }
