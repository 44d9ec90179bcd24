"""Merge of three identical replicas: chunks are compared and copied, none is decoded."""

from __future__ import annotations

from pathlib import Path

from tests.bench.figures import Figures
from tests.bench.tsdb_blocks import copied_block, write_block
from tests.bench.tsdb_merge_runs import measure_merges

NAME = "tsdb_passthrough"


def run(full: bool) -> Figures:
    """Run the benchmark; ``full`` makes more runs."""
    return measure_merges(_write, full)


def _write(folder: Path, series: int) -> None:
    first = write_block(folder, 1, series)
    for replica in (2, 3):
        copied_block(first, replica)
