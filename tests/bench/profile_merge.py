"""Merge of a job, from a folder to a folder: 20 segments of 4 services become one block.

Every variant runs in its own process, so that memory peaks are separate and ``LITHIFY_PURE=1`` applies to all of it.
Times are CPU times of one thread, medians of many runs. Two fan-ins give two equations for the costs of a source
dataset and of an output dataset.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engine.core.kernels import implementation_of
from engine.formats.profile_block.container.metadata import decode_metadata
from engine.formats.profile_block.merge_model import Scratch
from engine.lanes.profiles.jobs import ProfileMergeSpec
from engine.lanes.profiles.merge.merge import run as run_merge
from engine.storage import open_store
from tests.bench.figures import Figures, peak_rss_mb
from tests.bench.profile_segments import SAMPLES, write_segments
from tests.engine.formats.profile_block.factories import merge_spec

NAME = "profile_merge"
SEGMENTS = 20
FEW_SEGMENTS = 4
SERVICES = 4
RUNS = 15
MB = 1e6


def run(full: bool) -> Figures:
    """Run the benchmark; ``full`` makes five times the runs."""
    runs = RUNS * 5 if full else RUNS
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _write_jobs(root)
        whole = _measure(root, "whole", runs)
        few = _measure(root, "few", 3 * runs)
        more_sources = _measure(root, "sources_3x", 3)
        more_datasets = _measure(root, "datasets_3x", 3)
        plain = _measure(root, "whole", 1, LITHIFY_PURE="1")
    per_source = (whole["seconds"] - few["seconds"]) / (SERVICES * (SEGMENTS - FEW_SEGMENTS))
    per_output = whole["seconds"] / SERVICES - SEGMENTS * per_source
    parameters: dict[str, object] = {
        "segments": SEGMENTS,
        "datasets": SERVICES,
        "dataset_bytes": whole["dataset_bytes"],
        "runs": runs,
        "implementation": whole["implementation"],
    }
    figures = {
        "input_mb_per_s_core": whole["input_bytes"] / MB / whole["seconds"],
        "ms_per_source_dataset": per_source * 1e3,
        "ms_per_output_dataset": per_output * 1e3,
        "profiles_per_s_core": whole["rows"] / whole["seconds"],
        "samples_per_s_core": whole["samples"] / whole["seconds"],
        "speedup_over_twin": plain["seconds"] / whole["seconds"],
        "peak_rss_mb": whole["peak_rss_mb"],
        "rss_growth_3x": more_datasets["peak_rss_mb"] / whole["peak_rss_mb"],
        "rss_growth_3x_sources": more_sources["peak_rss_mb"] / whole["peak_rss_mb"],
        "output_to_input_bytes": whole["output_bytes"] / whole["input_bytes"],
        "wall_ms": whole["wall_seconds"] * 1e3,
    }
    return Figures(parameters, figures)


def _write_jobs(root: Path) -> None:
    """Write the segments and a specification per variant.

    The input is tripled in two ways: three times the datasets in the maximum segments of a job, and three times the
    segments, which no planner assigns to one job.
    """
    store = open_store(f"file://{root / 'store'}")
    sources = write_segments(store, 3 * SEGMENTS, SERVICES)
    wide = write_segments(open_store(f"file://{root / 'datasets_3x'}"), SEGMENTS, 3 * SERVICES)
    jobs = {
        "few": sources[:FEW_SEGMENTS],
        "whole": sources[:SEGMENTS],
        "sources_3x": sources,
        "datasets_3x": wide,
    }
    for name, chosen in jobs.items():
        (root / f"{name}.json").write_text(json.dumps(merge_spec(chosen).to_json()))


def _measure(root: Path, job: str, runs: int, **environment: str) -> dict[str, float]:
    """Run merges in a subprocess and return its measurements."""
    finished = subprocess.run(
        [sys.executable, "-m", "tests.bench.profile_merge", str(root), job, str(runs)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    measured: dict[str, float] = json.loads(finished.stdout)
    return measured


def _measure_here(root: Path, job: str, runs: int) -> dict[str, object]:
    spec = ProfileMergeSpec.from_json(json.loads((root / f"{job}.json").read_text()))
    folder = root / job if (root / job).is_dir() else root / "store"
    store = open_store(f"file://{folder}")
    scratch = Scratch(root / "scratch")
    result = run_merge(spec, store, scratch=scratch)
    seconds, wall_seconds = [], []
    for _ in range(runs):
        wall, started = time.perf_counter(), time.process_time()
        run_merge(spec, store, scratch=scratch)
        seconds.append(time.process_time() - started)
        wall_seconds.append(time.perf_counter() - wall)
    datasets = [dataset for source in spec.sources for dataset in decode_metadata(source.metadata).datasets]
    return {
        "implementation": implementation_of("engine.lanes.profiles.merge._dataset_merge"),
        "seconds": statistics.median(seconds),
        "wall_seconds": statistics.median(wall_seconds),
        "peak_rss_mb": peak_rss_mb(),
        "rows": result.rows_read,
        "samples": result.rows_read * SAMPLES,
        "input_bytes": sum(source.size for source in spec.sources),
        "output_bytes": sum(block.size for block in result.blocks),
        "dataset_bytes": round(statistics.median(dataset.size for dataset in datasets if dataset.name)),
    }


if __name__ == "__main__":
    print(json.dumps(_measure_here(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
