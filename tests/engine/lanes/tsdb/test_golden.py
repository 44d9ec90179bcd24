"""The golden Prometheus blocks: merging the two replicas gives the bytes that Prometheus made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.formats.prometheus.block_reader import BlockReader
from engine.formats.prometheus.meta import decode_meta, encode_meta
from engine.lanes.tsdb.merge.merge import MergeRules, Winner, merge_blocks
from engine.lanes.tsdb.merge.verification import verify_block

GOLDEN = Path(__file__).parents[3] / "golden/tsdb"
REPLICAS = ("01M86F6JKSGJNF1NPCBN5E984M", "01M86F6JTH829TPGD9HM5TQSR9")
OF_PROMETHEUS = "01M86F95J5KGDSBVG7M4RRR9C9"


@pytest.mark.parametrize("block", [*REPLICAS, OF_PROMETHEUS])
def test_each_block_is_sound_and_has_the_counts_of_its_meta_json(block: str) -> None:
    data = (GOLDEN / block / "meta.json").read_bytes()
    meta = decode_meta(data)
    counts = verify_block(GOLDEN / block)
    assert (counts.samples, counts.series, counts.chunks) == (
        meta.stats.num_samples,
        meta.stats.num_series,
        meta.stats.num_chunks,
    )
    assert encode_meta(meta) == data


def test_series_are_found_by_their_labels() -> None:
    index = BlockReader(GOLDEN / REPLICAS[0]).index
    (room,) = index.postings(b"room", "ä room".encode())
    assert dict(index.series_by_id(room).labels) == {b"__name__": b"temperature", b"room": "ä room".encode()}
    assert len(index.postings(b"job", b"api")) == 2


@pytest.mark.usefixtures("each_series_merge")
def test_the_merge_has_the_bytes_that_prometheus_wrote(tmp_path: Path) -> None:
    rules = MergeRules(winner=Winner.PROMETHEUS)
    folders = [GOLDEN / replica for replica in REPLICAS]
    outcome = merge_blocks(folders, tmp_path, OF_PROMETHEUS, rules=rules, budget_bytes=64 << 20)
    assert outcome.counts.samples_read == 2640
    for file in ("index", "chunks/000001", "tombstones"):
        assert (tmp_path / OF_PROMETHEUS / file).read_bytes() == (GOLDEN / OF_PROMETHEUS / file).read_bytes(), file
