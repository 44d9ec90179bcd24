"""End-to-end latency: from the creation of a segment to its merged block, through web, broker, node and Spark.

Estimate: at 2 segments per second a batch of 20 is full after 9.5 s; then half a poll interval on average, a Spark job
of a few hundred milliseconds and one poll. At saturation the node always has a batch ready, so throughput is the
segments of a batch divided by the cost of a Spark job and two polls.
"""

from __future__ import annotations

import statistics
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.figures import Figures
from tests.e2e.stack import Stack
from tests.processes import Processes, wait_until

NAME = "end_to_end"
SEGMENTS_PER_SECOND = 2
STEADY_SHARD, BUSY_SHARD = 1, 2
BATCH = 20
"""Segments of a full batch with the default policy of level 0."""
WAIT_SECONDS_MAX = 120.0

COMPACTIONS = """
SELECT min(source.created_at_ms), done.wall_time, given.wall_time, count(*)
FROM schedule_job job
JOIN profiles_block source ON source.owner_job_id = job.id
JOIN schedule_command done ON done."index" = job.finished_command_index
JOIN schedule_command given ON given."index" = job.token
WHERE job.shard = ? AND job.level = 0 AND job.state = 'done'
GROUP BY job.id
"""


def run(full: bool) -> Figures:
    """Measure a steady and a saturated shard on a stack started for this."""
    steady_batches, busy_batches = (12, 100) if full else (2, 10)
    steady_count, busy_count = steady_batches * BATCH, busy_batches * BATCH
    with tempfile.TemporaryDirectory(prefix="lithify-bench-") as home, Processes(quiet=True) as processes:
        stack = Stack(Path(home), processes)
        stack.start_node(POLL_SECONDS="1", NODE_CAPACITY="")
        _write(processes, stack, STEADY_SHARD, steady_count, SEGMENTS_PER_SECOND)
        steady = _wait_for(stack, STEADY_SHARD, steady_batches)
        _write(processes, stack, BUSY_SHARD, busy_count, 0)
        busy = _wait_for(stack, BUSY_SHARD, busy_batches)
        stack.close()
    waits = [live_at - born_at for born_at, live_at, _ in steady]
    busy_seconds = max(live_at for _, live_at, _ in busy) - min(given_at for _, _, given_at in busy)
    return Figures(
        parameters={
            "segments_per_second": SEGMENTS_PER_SECOND,
            "steady_segments": steady_count,
            "busy_segments": busy_count,
            "datasets_per_segment": 4,
        },
        figures={
            "time_to_first_compaction_s": statistics.median(waits),
            "time_to_first_compaction_max_s": max(waits),
            "segments_per_s": busy_count / busy_seconds,
        },
    )


def _write(processes: Processes, stack: Stack, shard: int, count: int, per_second: float) -> None:
    arguments = ["--shard", str(shard), "--count", str(count), "--per-second", str(per_second)]
    writer = processes.start_python(
        "writer", "-m", "tests.bench.segment_writer", *arguments, environment=stack.environment
    )
    code = writer.wait(WAIT_SECONDS_MAX + (count / per_second if per_second else 0))
    assert code == 0, writer.story()


def _wait_for(stack: Stack, shard: int, batches: int) -> list[tuple[float, float, float]]:
    """Wait for the batches; return for each (oldest source created, result live, job assigned) in unix seconds."""
    wait_until(lambda: len(stack.rows(COMPACTIONS, shard)) >= batches, f"{batches} batches merged", WAIT_SECONDS_MAX)
    found = stack.rows(COMPACTIONS, shard)
    assert sum(count for *_, count in found) == batches * BATCH
    return [(born_ms / 1000, _unix_seconds(live), _unix_seconds(given)) for born_ms, live, given, _ in found]


def _unix_seconds(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
