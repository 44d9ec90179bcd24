"""Real blocks through a bucket: uploaded, found, fetched, verified; and a block of our own published beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from engine.core import ulids
from engine.formats.prometheus.block_reader import BlockReader
from engine.formats.prometheus.block_writer import BlockWriter
from engine.formats.prometheus.chunks.chunk_writer import FILE_BYTES
from engine.formats.prometheus.meta import decode_meta, encode_meta
from engine.lanes.tsdb.buckets.deleting import delete_marked_block
from engine.lanes.tsdb.buckets.fetching import fetch_blocks
from engine.lanes.tsdb.buckets.index_stats import measure_index
from engine.lanes.tsdb.buckets.layout import META, layout
from engine.lanes.tsdb.buckets.publishing import mark_replaced, publish_meta, update_index
from engine.lanes.tsdb.buckets.scan import scan_folder
from engine.lanes.tsdb.buckets.sections import completed_section, result_section
from engine.lanes.tsdb.buckets.uploading import upload_block
from engine.lanes.tsdb.jobs import TsdbSource
from engine.lanes.tsdb.merge.verification import verify_block
from engine.storage import ObjectStore
from tests.engine.lanes.tsdb.conftest import RealBlocks


def uploaded(store: ObjectStore, folder: str, block: Path, thanos: dict[str, object] | None) -> None:
    """Upload a block the way a sidecar does."""
    files = upload_block(store, folder, block)
    meta = replace(decode_meta((block / META).read_bytes()), thanos=thanos)
    publish_meta(store, folder, block.name, encode_meta(meta), files)


def written_again(source: BlockReader, parent: Path, ulid: str, chunk_file_bytes: int = FILE_BYTES) -> Path:
    """Write a block of our own with the chunks of another, under another id."""
    with BlockWriter(parent, ulid, source.index.symbols, chunk_file_bytes=chunk_file_bytes) as writer:
        for batch in source.index.batches():
            refs: list[int] = []
            for first, last in zip(batch.chunk_starts[:-1].tolist(), batch.chunk_starts[1:].tolist(), strict=True):
                refs += writer.write_chunks([source.chunks.read(int(ref)) for ref in batch.chunk_refs[first:last]])
            writer.add_series(batch._replace(chunk_refs=np.array(refs, np.uint64)))
        writer.finish(source.meta)
    return parent / ulid


@pytest.mark.slow
@pytest.mark.foreign_data
@pytest.mark.parametrize("layout_name", ["cortex", "thanos"])
def test_real_blocks_go_through_a_bucket_unchanged(
    all_real_blocks: dict[str, RealBlocks], any_store: ObjectStore, layout_name: str, tmp_path: Path
) -> None:
    place = layout(layout_name, ["replica"])
    folder = place.folder("anonymous") if layout_name == "cortex" else ""
    blocks = {each.name: each for name in ("five-intervals", "tombstones") for each in all_real_blocks[name].folders()}
    for number, block in enumerate(blocks.values()):
        thanos: dict[str, object] = {"labels": {"cluster": "eu", "replica": "ab"[number % 2]}}
        uploaded(any_store, folder, block, thanos if layout_name == "thanos" else None)
    scan = scan_folder(any_store, place, folder)
    assert {block.ulid for block in scan.appeared} == blocks.keys()
    assert len(scan.tenants) == len({block.group_key for block in scan.appeared}) == 1
    assert (scan.bad, scan.partial) == ((), ())
    found = sorted(scan.appeared, key=lambda block: block.ulid)[:3]
    sources = [TsdbSource(id=each.ulid, level=1, files=each.files, meta=each.meta_bytes) for each in found]
    for fetched in fetch_blocks(any_store, folder, sources, tmp_path / "local"):
        original = blocks[fetched.name]
        assert (fetched / "index").read_bytes() == (original / "index").read_bytes()
        for chunks in (original / "chunks").iterdir():
            assert (fetched / "chunks" / chunks.name).read_bytes() == chunks.read_bytes()
        stats = decode_meta((fetched / META).read_bytes()).stats
        assert verify_block(fetched).samples == stats.num_samples


@pytest.mark.slow
@pytest.mark.foreign_data
@pytest.mark.parametrize("layout_name", ["cortex", "thanos"])
def test_a_block_of_ours_takes_the_place_of_real_ones(
    all_real_blocks: dict[str, RealBlocks], any_store: ObjectStore, layout_name: str, tmp_path: Path
) -> None:
    place = layout(layout_name, ["replica"])
    folder = place.folder("anonymous") if layout_name == "cortex" else ""
    block = all_real_blocks["replicas-two-intervals"].folders()[0]
    uploaded(any_store, folder, block, {"labels": {"replica": "a", "cluster": "eu"}})
    (source,) = scan_folder(any_store, place, folder).appeared
    result = written_again(BlockReader(block), tmp_path / "merged", ulids.new(ulids.time_ms(block.name)))
    files = upload_block(any_store, folder, result)
    section = completed_section(
        result_section(place, [source.meta], range_ms=7_200_000),
        files,
        stats=measure_index(result),
        uploaded_at_s=1_700_000_000,
    )
    meta = replace(decode_meta((result / META).read_bytes()), thanos=section)
    publish_meta(any_store, folder, result.name, encode_meta(meta), files)
    mark_replaced(any_store, place, folder, [block.name], [result.name], at_s=1_700_000_000)
    update_index(any_store, place, folder, now_s=1_700_000_000)
    scan = scan_folder(any_store, place, folder)
    assert scan.known.complete == {block.name, result.name}
    assert scan.known.plannable() == {result.name}
    (found,) = (each for each in scan.appeared if each.ulid == result.name)
    assert found.group_key == source.group_key
    assert found.tenant == source.tenant
    assert json.loads(found.meta_bytes)["thanos"]["files"][0] == {
        "rel_path": "chunks/000001",
        "size_bytes": (result / "chunks" / "000001").stat().st_size,
    }
    assert delete_marked_block(any_store, place, folder, block.name, now_s=1_700_003_600, delay_s=3600)
    after = scan_folder(any_store, place, folder, scan.known, deep=True)
    assert (after.vanished, after.known.blocks, after.known.marks) == ((block.name,), {result.name}, {})
    assert not any(block.name in info.key for info in any_store.list())


@pytest.mark.foreign_data
@pytest.mark.parametrize("chunk_file_bytes", [FILE_BYTES, 4096])
def test_the_largest_series_and_chunk_are_measured(
    real_blocks: RealBlocks, tmp_path: Path, chunk_file_bytes: int
) -> None:
    source = BlockReader(real_blocks.folders()[0])
    folder = written_again(source, tmp_path, source.name, chunk_file_bytes=chunk_file_bytes)
    assert (len(list((folder / "chunks").iterdir())) > 5) == (chunk_file_bytes == 4096)
    block = BlockReader(folder)
    stats = measure_index(folder)
    chunks = [len(block.chunk(meta).data) for series in block.index.series() for meta in series.chunks]
    # A record is a length of up to five bytes, the encoding, the data and a checksum.
    assert max(chunks) + 6 <= stats.chunk_max_size <= max(chunks) + 10
    starts = [*(16 * np.concatenate([batch.ids for batch in block.index.batches()]).astype(int)).tolist()]
    starts.append(block.index.contents.label_indices)
    assert stats.series_max_size == max(after - before for before, after in pairwise(starts))
