"""Merge of two replicas that each lack one sample in twenty: every chunk is decoded and encoded again."""

from __future__ import annotations

from pathlib import Path

from tests.bench.figures import Figures
from tests.bench.tsdb_blocks import write_block
from tests.bench.tsdb_merge_runs import measure_merges

NAME = "tsdb_merge"
GAPS = 0.05


def run(full: bool) -> Figures:
    """Run the benchmark; ``full`` makes more runs."""
    return measure_merges(_write, full)


def _write(folder: Path, series: int) -> None:
    for replica in (1, 2):
        write_block(folder, replica, series, gaps=GAPS)
