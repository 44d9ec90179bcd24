"""A real Prometheus on our merges: it serves the same samples as before, and merges the same blocks to the same."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.core import ulids
from engine.formats.prometheus.block_reader import BlockReader
from engine.formats.prometheus.meta import BlockMeta, decode_meta
from engine.lanes.tsdb.merge.merge import MergeRules, merge_blocks
from tests.bench.tsdb_blocks import write_block
from tests.engine.lanes.tsdb.conftest import RealBlocks, all_real_blocks
from tests.engine.lanes.tsdb.digests import digests
from tests.interop.prometheus import PROGRAM, serving
from tests.processes import wait_until

__all__ = ["all_real_blocks"]

pytestmark = [
    pytest.mark.foreign_data,
    pytest.mark.stack,
    pytest.mark.skipif(not shutil.which(PROGRAM), reason="no prometheus: ./dev test takes it out of its package"),
]
COMPACTED_SECONDS = 200.0
"""Prometheus looks for something to merge a minute after its start."""
SERIES = 20_000
BUDGET = 512 << 20
NAME = ulids.make(1_700_000_000_000, bytes(10))
LOGGED = re.compile(r'msg="compact blocks" .*ulid=(\w+).* duration=([0-9.]+)(ms|s)')


def merged(folders: Sequence[Path], parent: Path, name: str = NAME) -> Path:
    """Merge blocks by our documented rule."""
    outcome = merge_blocks(folders, parent, name, rules=MergeRules(), budget_bytes=BUDGET)
    assert outcome.meta is not None
    return parent / name


def span(folders: Sequence[Path]) -> tuple[int, int]:
    metas = [meta_of(folder) for folder in folders]
    return min(meta.min_time_ms for meta in metas), max(meta.max_time_ms for meta in metas)


def meta_of(folder: Path) -> BlockMeta:
    return decode_meta((folder / "meta.json").read_bytes())


# Where samples of replicas conflict, what is served before a merge is nobody's promise.
@pytest.mark.parametrize("archive", ["five-intervals", "replicas-two-intervals", "stale-and-histograms", "tombstones"])
def test_it_serves_the_same_samples_before_and_after_our_merge(
    all_real_blocks: dict[str, RealBlocks], tmp_path: Path, archive: str
) -> None:
    sources = all_real_blocks[archive].folders()
    start_ms, end_ms = span(sources)
    answers = []
    for name, blocks in {"before": sources, "after": [merged(sources, tmp_path / "merged")]}.items():
        (tmp_path / name).mkdir()
        with serving(blocks, tmp_path / name) as prometheus:
            answers.append((prometheus.samples(start_ms - 1, end_ms), prometheus.steps(start_ms, end_ms, 20)))
    samples, steps = answers[0]
    assert samples
    assert steps
    assert any("histograms" in series for series in samples) == (archive == "stale-and-histograms")
    assert answers[1] == answers[0]


def test_its_own_merge_of_the_same_blocks_has_the_same_samples(
    all_real_blocks: dict[str, RealBlocks], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Beside real blocks a pair that is large enough for its time to mean something.
    large = [write_block(tmp_path / "large", number, SERIES, interval=5, gaps=0.05) for number in (1, 2)]
    sources = [*all_real_blocks["replicas-two-intervals"].folders(), *large]
    with serving(sources, tmp_path) as prometheus:
        blocks = prometheus.folder

        def results() -> list[Path]:
            found = (path.parent for path in blocks.glob("*/meta.json"))
            return [folder for folder in found if re.fullmatch(r"\w{26}", folder.name) and len(parents(folder)) == 2]

        wait_until(lambda: len(results()) == 3, "Prometheus merges three intervals", COMPACTED_SECONDS)
        theirs = sorted(results(), key=lambda folder: meta_of(folder).min_time_ms)
        prometheus.process.wait_for_line("compact blocks", count=3)
        their_seconds = sum(
            float(found[2]) / (1000 if found[3] == "ms" else 1)
            for line in prometheus.process.lines
            if (found := LOGGED.search(line))
        )
        our_seconds = 0.0
        for their in theirs:
            inputs = [folder for folder in sources if folder.name in parents(their)]
            started = time.perf_counter()
            ours = merged(inputs, tmp_path / "ours" / their.name)
            our_seconds += time.perf_counter() - started
            assert digests(BlockReader(ours)) == digests(BlockReader(their))
    with capsys.disabled():
        ratio = their_seconds / our_seconds
        print(f"\nPrometheus merged in {their_seconds:.3f} s, we did in {our_seconds:.3f} s: {ratio:.1f} times as long")


def parents(folder: Path) -> set[str]:
    return {parent.ulid for parent in meta_of(folder).compaction.parents}
