"""Merge of three consecutive blocks of two hours into one of six: chunks are copied."""

from __future__ import annotations

from pathlib import Path

from tests.bench.figures import Figures
from tests.bench.tsdb_blocks import write_block
from tests.bench.tsdb_merge_runs import measure_merges

NAME = "tsdb_horizontal"
INTERVALS = 3


def run(full: bool) -> Figures:
    """Run the benchmark; ``full`` makes more runs."""
    return measure_merges(_write, full)


def _write(folder: Path, series: int) -> None:
    for interval in range(INTERVALS):
        write_block(folder, 1 + interval, series, interval=interval)
