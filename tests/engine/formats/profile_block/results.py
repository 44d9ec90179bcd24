"""Looks into what a merge job wrote."""

from __future__ import annotations

from engine.core.checksums import crc32c
from engine.formats.profile_block.container.container import BlockReader
from engine.formats.profile_block.container.metadata import decode_metadata
from engine.formats.profile_block.model import BlockMeta
from engine.lanes.profiles.jobs import ProfileMergeResult
from engine.storage import ObjectStore


def result_meta(store: ObjectStore, result: ProfileMergeResult, number: int = 0) -> BlockMeta:
    """Return a result's metadata after comparing what the result says with the object."""
    block = result.blocks[number]
    meta = BlockReader.open(store, block.key).meta
    data = store.get(block.key)
    assert (block.size, block.crc32c) == (len(data), crc32c(data))
    assert (meta.id, decode_metadata(block.metadata).datasets) == (block.id, meta.datasets)
    return meta


def sections(store: ObjectStore, key: str) -> dict[str, list[bytes]]:
    reader = BlockReader.open(store, key)
    return {
        dataset.name: [reader.read(*bounds) for bounds in dataset.section_bounds()] for dataset in reader.meta.datasets
    }
