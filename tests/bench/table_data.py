"""Small sorted Parquet files of a table of requests, like those of a writer that flushes every few minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine.lanes.tables.jobs import TableChunk, TableFile, TableMergeResult, TableMergeSpec
from engine.lanes.tables.plan.model import Segment
from engine.lanes.tables.plan.plan import plan_timeline
from engine.lanes.tables.plan.policy import TimelinePolicy
from engine.lanes.tables.plan.visibility import instant_version

DAY_US = 86_400_000_000
SERVICES = 40
TARGET_BYTES = 64_000_000


def write_days(folder: Path, days: int, files_per_day: int, rows_per_file: int) -> TableMergeSpec:
    """Write the files of ``days`` days, and return the job that merges each day."""
    chance = np.random.default_rng(7)
    names = pa.array([f"service-{number:03}" for number in range(SERVICES)])
    chunks = []
    for day in range(days):
        files = []
        for number in range(files_per_day):
            first = day * DAY_US + number * DAY_US // (files_per_day + 1)
            at = np.sort(first + chance.integers(0, 2 * DAY_US // (files_per_day + 1), rows_per_file))
            table = pa.table(
                {
                    "at": pa.array(np.minimum(at, (day + 1) * DAY_US - 1), pa.timestamp("us", "UTC")),
                    "service": names.take(pa.array(chance.integers(0, SERVICES, rows_per_file))),
                    "status": pa.array(chance.choice([200, 200, 200, 304, 404, 500], rows_per_file), pa.int32()),
                    "bytes": pa.array(chance.integers(0, 1 << 20, rows_per_file)),
                    "seconds": pa.array(np.round(chance.exponential(0.2, rows_per_file), 6)),
                }
            )
            name = f"day-{day:02}-{number:04}.parquet"
            pq.write_table(table, folder / name)
            files.append(TableFile(path=name, size=(folder / name).stat().st_size, rows=rows_per_file))
        chunks.append(TableChunk(start_ms=day * DAY_US // 1000, end_ms=(day + 1) * DAY_US // 1000, files=tuple(files)))
    return TableMergeSpec(
        job="tables/bench",
        tenant="bench",
        source="requests",
        url=folder.as_uri(),
        chunks=tuple(chunks),
        time_column="at",
        target_bytes=TARGET_BYTES,
        fence=1,
    )


def tasks_before_and_after(spec: TableMergeSpec, result: TableMergeResult) -> tuple[int, int]:
    """Return how many tasks a controller plans for the files by day, before and after a merge."""
    days = {chunk.start_ms: (chunk.end_ms, [file.size for file in chunk.files]) for chunk in spec.chunks}
    left = {chunk.start_ms: (chunk.end_ms, [file.size for file in chunk.outputs]) for chunk in result.chunks}
    policy = TimelinePolicy(segment_bytes_max=spec.target_bytes)
    now_ms = max(end_ms for end_ms, _ in days.values())
    before, after = (plan_timeline("bench", segments_of(files), policy, now_ms=now_ms).tasks for files in (days, left))
    return len(before), len(after)


def segments_of(files: Mapping[int, tuple[int, Sequence[int]]]) -> list[Segment]:
    """Return segments of these sizes, by the start of a chunk, with its end."""
    found: list[Segment] = []
    for start_ms, (end_ms, sizes) in files.items():
        for place, size in enumerate(sizes):
            found.append(
                Segment(
                    key=len(found) + 1,
                    start_ms=start_ms,
                    end_ms=end_ms,
                    version=instant_version(start_ms),
                    partition=place,
                    size_bytes=size,
                )
            )
    return found
