"""Measure merges of blocks, each variant in its own process so that memory peaks are separate.

Times are CPU times of one thread, and include reading the sources, checksums, index and fsync. Three times the input is
three times the series; the larger of the two blocks is measured.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from engine.core.kernels import implementation_of
from engine.lanes.tsdb.merge.merge import MergeRules, merge_blocks
from tests.bench.figures import Figures, peak_rss_mb
from tests.bench.tsdb_blocks import block_ulid

MB = 1e6
SERIES = 100_000
SERIES_TWIN = 60
RUNS, RUNS_FULL = 3, 9
BUDGET_BYTES = 256 << 20
RESULT = block_ulid(1 << 20)


def measure_merges(write: Callable[[Path, int], None], full: bool) -> Figures:
    """Measure merges of the blocks that ``write`` writes to a folder with a given number of series."""
    runs = RUNS_FULL if full else RUNS
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, series in (("whole", SERIES), ("third", SERIES // 3), ("twin", SERIES_TWIN)):
            write(root / name, series)
        whole = _measure(root / "whole", runs)
        third = _measure(root / "third", runs)
        twin = _measure(root / "twin", 1, LITHIFY_PURE="1")
    return Figures(
        parameters={
            "series": SERIES,
            "input_samples": whole["samples_read"],
            "output_samples": whole["samples_written"],
            "input_bytes": whole["bytes_read"],
            "budget_mb": BUDGET_BYTES >> 20,
            "runs": runs,
            "implementation": whole["implementation"],
        },
        figures={
            "series_per_s_core": whole["series_written"] / whole["seconds"],
            "samples_per_s_core": whole["samples_read"] / whole["seconds"],
            "input_mb_per_s_core": whole["bytes_read"] / MB / whole["seconds"],
            "peak_rss_mb": whole["peak_rss_mb"],
            "rss_growth_3x": whole["peak_rss_mb"] / third["peak_rss_mb"],
            "speedup_over_twin": whole["samples_read"] / whole["seconds"] / (twin["samples_read"] / twin["seconds"]),
            "wall_s": whole["wall_seconds"],
        },
    )


def _measure(blocks: Path, runs: int, **environment: str) -> dict[str, float]:
    finished = subprocess.run(
        [sys.executable, "-m", "tests.bench.tsdb_merge_runs", str(blocks), str(runs)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    measured: dict[str, float] = json.loads(finished.stdout)
    return measured


def _measure_here(blocks: Path, runs: int) -> dict[str, object]:
    sources = sorted(path for path in blocks.iterdir() if path.is_dir())
    seconds, wall_seconds = [], []
    for _ in range(runs):
        wall, started = time.perf_counter(), time.process_time()
        outcome = merge_blocks(sources, blocks.parent / "result", RESULT, rules=MergeRules(), budget_bytes=BUDGET_BYTES)
        seconds.append(time.process_time() - started)
        wall_seconds.append(time.perf_counter() - wall)
        shutil.rmtree(blocks.parent / "result")
    return {
        "implementation": implementation_of("engine.lanes.tsdb.merge._series_merge"),
        "seconds": statistics.median(seconds),
        "wall_seconds": statistics.median(wall_seconds),
        "peak_rss_mb": peak_rss_mb(),
        "series_written": outcome.counts.series_written,
        "samples_read": outcome.counts.samples_read,
        "samples_written": outcome.counts.samples_written,
        "bytes_read": outcome.counts.bytes_read,
    }


if __name__ == "__main__":
    print(json.dumps(_measure_here(Path(sys.argv[1]), int(sys.argv[2]))))
