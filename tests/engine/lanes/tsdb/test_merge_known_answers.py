"""Merges of real blocks give what Prometheus made of them, under its own rule byte for byte."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.formats.prometheus.block_reader import BlockReader
from engine.lanes.tsdb.merge.merge import MergeOutcome, MergeRules, Winner, merge_blocks
from engine.lanes.tsdb.merge.verification import verify_block
from tests.engine.lanes.tsdb.conftest import RealBlocks
from tests.engine.lanes.tsdb.digests import digests

pytestmark = pytest.mark.foreign_data
CONFLICTS = {"conflicting-values", "three-replicas"}
BUDGET_BYTES = 64 << 20


def merged(blocks: RealBlocks, answer: dict[str, Any], parent: Path, winner: Winner) -> MergeOutcome:
    """Merge the sources of a known result; one block that was cleaned up is its own source, and has a parent.

    All that the sources say they have must have been read, whatever is deleted of it.
    """
    known = {folder.name: folder for folder in blocks.folders()}
    folders = [known[ulid] for ulid in answer["sources"] if ulid in known] or [known[answer["parents"][0]]]
    rules = MergeRules(winner=winner)
    outcome = merge_blocks(folders, parent, answer["ulid"], rules=rules, budget_bytes=BUDGET_BYTES)
    stats = [BlockReader(folder).meta.stats for folder in folders]
    assert outcome.counts.series_read == sum(one.num_series for one in stats)
    assert outcome.counts.samples_read == sum(one.num_samples for one in stats)
    return outcome


@pytest.mark.slow
@pytest.mark.usefixtures("each_series_merge")
def test_under_its_rule_the_bytes_are_those_of_prometheus(real_blocks: RealBlocks, tmp_path: Path) -> None:
    for answer in real_blocks.results:
        outcome = merged(real_blocks, answer, tmp_path, Winner.PROMETHEUS)
        folder = tmp_path / answer["ulid"]
        found = digests(BlockReader(folder))
        assert found == {name: answer[name] for name in found}
        files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("chunks/*")}
        assert files == {name: file["sha256"] for name, file in answer["chunk_files"].items()}
        assert hashlib.sha256((folder / "index").read_bytes()).hexdigest() == answer["index_sha256"]
        assert outcome.meta is not None
        stats = outcome.meta.stats
        assert (stats.num_samples, stats.num_series, stats.num_chunks) == tuple(
            answer[name] for name in ("samples", "series", "chunks")
        )
        assert list(outcome.meta.compaction.sources) == answer["sources"]


@pytest.mark.slow
@pytest.mark.usefixtures("each_series_merge")
def test_under_ours_only_conflicting_values_differ(
    real_blocks: RealBlocks, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    archive = request.node.callspec.params["real_blocks"]
    for answer in real_blocks.results:
        merged(real_blocks, answer, tmp_path, Winner.OURS)
        counts = verify_block(tmp_path / answer["ulid"])
        assert (counts.samples, counts.series, counts.chunks) == tuple(
            answer[name] for name in ("samples", "series", "chunks")
        )
        found = digests(BlockReader(tmp_path / answer["ulid"]))
        assert found["chunk_layout_sha256"] == answer["chunk_layout_sha256"]
        assert (found["samples_sha256"] != answer["samples_sha256"]) == (archive in CONFLICTS)


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool: apt-get install prometheus")
@pytest.mark.parametrize("archive", ["stale-and-histograms", "five-intervals", "tombstones"])
def test_promtool_lists_counts_and_dumps_a_result(
    all_real_blocks: dict[str, RealBlocks], tmp_path: Path, archive: str
) -> None:
    blocks = all_real_blocks[archive]
    answer = blocks.results[-1]
    merged(blocks, answer, tmp_path, Winner.OURS)
    (tmp_path / "wal").mkdir()  # promtool reads a whole data folder

    def said(command: str, *more: str) -> str:
        done = subprocess.run(
            ["promtool", "tsdb", command, str(tmp_path), *more], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert answer["ulid"] in said("list")
    assert f"\nSeries: {answer['series']}\n" in said("analyze", answer["ulid"])
    # It leaves out what it cannot say in a line: markers, and chunks of histograms.
    dumped = len(said("dump").splitlines())
    floats = answer["samples"] - answer["histogram_samples"]
    assert 0 < dumped <= answer["samples"]
    assert dumped >= floats
