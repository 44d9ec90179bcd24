"""Real blocks of Prometheus read as what is known of them, and nothing in them is found wrong."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from engine.formats.prometheus.block_reader import BlockReader
from engine.formats.prometheus.meta import decode_meta, encode_meta
from engine.lanes.tsdb.merge.verification import verify_block
from tests.engine.lanes.tsdb.conftest import RealBlocks
from tests.engine.lanes.tsdb.digests import digests

pytestmark = pytest.mark.foreign_data


@pytest.mark.slow
def test_labels_samples_and_layout_of_chunks_are_the_known_ones(real_blocks: RealBlocks) -> None:
    for folder, answer in zip(real_blocks.folders(), real_blocks.answers, strict=True):
        found = digests(BlockReader(folder))
        assert found == {name: answer[name] for name in found}


@pytest.mark.slow
def test_a_real_block_is_found_sound_and_has_the_known_counts(real_blocks: RealBlocks) -> None:
    for folder, answer in zip(real_blocks.folders(), real_blocks.answers, strict=True):
        counts = asdict(verify_block(folder))
        histograms = answer["histogram_samples"]
        assert {name: counts[name] for name in ("series", "chunks", "postings_lists")} == {
            name: answer[name] for name in ("series", "chunks", "postings_lists")
        }
        assert counts["samples"] == answer["samples"]
        assert counts["histogram_samples"] == histograms


def test_meta_json_is_read_and_written_back_byte_for_byte(real_blocks: RealBlocks) -> None:
    for folder, answer in zip(real_blocks.folders(), real_blocks.answers, strict=True):
        data = (folder / "meta.json").read_bytes()
        meta = decode_meta(data)
        assert (meta.ulid, meta.min_time_ms, meta.max_time_ms) == (
            answer["ulid"],
            answer["min_time"],
            answer["max_time"],
        )
        assert (meta.compaction.level, list(meta.compaction.sources)) == (answer["level"], answer["sources"])
        assert encode_meta(meta) == data


@pytest.mark.slow
def test_postings_find_the_series_and_the_symbols_are_all_there(real_blocks: RealBlocks) -> None:
    for folder, answer in zip(real_blocks.folders(), real_blocks.answers, strict=True):
        index = BlockReader(folder).index
        assert len(index.symbols) == answer["symbols"]
        *_, series = index.series()
        assert index.series_by_id(series.id) == series
        for name, value in series.labels:
            assert series.id in index.postings(name, value)
        assert not len(index.postings(b"no", b"where"))
