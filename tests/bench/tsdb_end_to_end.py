"""End-to-end compaction of groups of three replicas through service, node, Spark and an S3 server.

A node leases jobs, downloads over HTTP, merges on Spark, uploads and reports; the service completes the groups, and the
outbox writes ``meta.json``, the marks of the sources and the index. Web process, broker, control worker, node and the
S3 server are real processes on this machine and use its processors; the server reads from files, because one in pure
Python (moto) uses more than the merge. A round lasts from the first lease to the last object written. The outbox is
written as soon as a job is done, not at its scheduled time. Estimate: a series has 1.6 KB in each replica, so that
60,000 series per second are 290 MB downloaded and 95 MB uploaded per second, in addition to a third of a core for the
merge itself.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from engine.formats.prometheus.meta import Compaction, decode_meta, encode_meta
from engine.storage import ObjectStore, open_store
from tasks.lanes.tsdb.manifest import PLAN_INTERVALS_TASK, SCAN_BUCKETS_TASK, WRITE_OUTBOXES_TASK
from tests.bench.figures import Figures, process_seconds
from tests.bench.tsdb_blocks import block_ulid, write_block
from tests.e2e.stack import Stack
from tests.file_s3 import running_file_s3
from tests.object_stores import CREDENTIALS
from tests.processes import Processes, wait_until

NAME = "tsdb_end_to_end"
REPLICAS = 3
GROUPS = 6
"""Groups per round, each of its own tenant."""
SERIES, SERIES_FULL = 100_000, 200_000
ROUNDS, ROUNDS_FULL = 2, 5
CAPACITY = 4
"""Jobs that the node holds, twice the Spark slots, so that the next ones are ready."""
WAIT_SECONDS_MAX = 300.0
MB = 1e6

# Wall-clock time, because the time of commands may lag after a pause.
ASSIGNED = (
    "SELECT min(given.wall_time), count(*) FROM schedule_job job"
    ' JOIN schedule_command given ON given."index" = job.token'
    " WHERE job.lane = 'tsdb' AND job.tenant LIKE ?"
)
DONE = "SELECT count(*) FROM schedule_job WHERE lane = 'tsdb' AND tenant LIKE ? AND state = 'done'"
WRITTEN = (
    "SELECT count(*), count(done_at_ms), max(done_at_ms) FROM tsdb_outboxstep step"
    " JOIN tsdb_buckettenant tenant ON step.tenant_id = tenant.id WHERE tenant.name LIKE ?"
)
INDEXED = (
    "SELECT count(*), max(index_written_at_ms) FROM tsdb_buckettenant"
    " WHERE name LIKE ? AND index_written >= index_wanted"
)
RESULTS = (
    "SELECT tenant.name, block.ulid, block.meta FROM tsdb_block block"
    " JOIN tsdb_buckettenant tenant ON block.tenant_id = tenant.id"
    " WHERE tenant.name LIKE ? AND block.made_by_id IS NOT NULL"
)


def run(full: bool) -> Figures:
    """Run the benchmark in a subprocess with the S3 server's credentials, and return its figures."""
    series, rounds = (SERIES_FULL, ROUNDS_FULL) if full else (SERIES, ROUNDS)
    program = [sys.executable, "-m", "tests.bench.tsdb_end_to_end", str(series), str(rounds)]
    answer = subprocess.run(
        program, stdout=subprocess.PIPE, check=True, text=True, env=os.environ | CREDENTIALS | {"STORE_ROOTS": "s3://*"}
    )
    parameters = {"groups": GROUPS, "replicas": REPLICAS, "series": series, "rounds": rounds, "capacity": CAPACITY}
    return Figures(parameters, json.loads(answer.stdout.splitlines()[-1]))


def measure(series: int, rounds: int) -> dict[str, float]:
    """Return the figures, medians over rounds of all groups; ``cpu_s`` is of all processes, including the server."""
    with (
        tempfile.TemporaryDirectory(prefix="lithify-bench-") as home,
        running_file_s3(Path(home) / "s3") as (server, _),
        Processes(quiet=True) as processes,
    ):
        stack = Stack(Path(home), processes)
        stack.start_control()
        stack.start_node(NODE_CAPACITY=str(CAPACITY), POLL_SECONDS="1")
        url = server.store_url("bucket")
        stack.manage("tsdb", "adopt", url, "--layout", "cortex", "--consistency-delay-seconds", "0")
        store = open_store(url)
        source = write_block(Path(home) / "blocks", 1, series)
        read = GROUPS * REPLICAS * sum(path.stat().st_size for path in _data_files(source))
        # The first round is a warm-up.
        measured = [_round(stack, store, Path(home) / "s3" / "bucket", source, each) for each in range(rounds + 1)][1:]
        store.close()
        stack.close()
    seconds = statistics.median(each for each, _ in measured)
    return {
        "series_per_s": GROUPS * series / seconds,
        "input_mb_per_s": read / MB / seconds,
        "seconds": seconds,
        "cpu_s": statistics.median(each for _, each in measured),
    }


def _round(stack: Stack, store: ObjectStore, bucket: Path, source: Path, number: int) -> tuple[float, float]:
    """Add groups to the bucket, wait until they are compacted; return the wall time and the CPU time."""
    ours = f"round-{number}-%"
    sources = [
        _link(source, bucket / f"round-{number}-{group}", 1 + (number * GROUPS + group) * REPLICAS + replica)
        for group in range(GROUPS)
        for replica in range(REPLICAS)
    ]
    stack.send_control_task(SCAN_BUCKETS_TASK)
    tenants = "SELECT count(*) FROM tsdb_block b JOIN tsdb_buckettenant t ON b.tenant_id = t.id WHERE t.name LIKE ?"
    wait_until(lambda: stack.rows(tenants, ours) == [(len(sources),)], "the blocks are found", WAIT_SECONDS_MAX)
    cpu_started = process_seconds(os.getpid())
    stack.send_control_task(PLAN_INTERVALS_TASK)
    _write_what_is_done(stack, ours)
    cpu_seconds = process_seconds(os.getpid()) - cpu_started
    [(assigned_at, jobs)] = stack.rows(ASSIGNED, ours)
    [(_, _, written_ms)] = stack.rows(WRITTEN, ours)
    [(_, indexed_ms)] = stack.rows(INDEXED, ours)
    assert jobs == GROUPS
    for tenant, ulid, meta in stack.rows(RESULTS, ours):
        assert store.get(f"{tenant}/{ulid}/meta.json") == bytes(meta)
        assert decode_meta(bytes(meta)).stats == decode_meta((source / "meta.json").read_bytes()).stats
    for info in list(store.list(f"round-{number}-")):
        store.delete(info.key)
    assigned_s = datetime.fromisoformat(assigned_at).replace(tzinfo=UTC).timestamp()
    return max(written_ms, indexed_ms) / 1000 - assigned_s, cpu_seconds


def _write_what_is_done(stack: Stack, ours: str) -> None:
    """Run the outbox whenever more jobs are done, until everything is written."""
    done = 0
    while done < GROUPS:
        done = _wait_for_more(stack, ours, done)
        stack.send_control_task(WRITE_OUTBOXES_TASK)
    wait_until(lambda: _is_written(stack, ours), "the outbox is written", WAIT_SECONDS_MAX)


def _wait_for_more(stack: Stack, ours: str, known: int) -> int:
    """Wait until more than ``known`` jobs are done; return their number."""
    wait_until(lambda: stack.rows(DONE, ours) > [(known,)], "another job is done", WAIT_SECONDS_MAX)
    [(done,)] = stack.rows(DONE, ours)
    return int(done)


def _is_written(stack: Stack, ours: str) -> bool:
    [(steps, written, _)], [(indexes, _)] = stack.rows(WRITTEN, ours), stack.rows(INDEXED, ours)
    return steps == written and indexes == GROUPS


def _link(source: Path, folder: Path, number: int) -> str:
    """Link a block into the bucket under another ULID; all copies share their files."""
    ulid = block_ulid(number)
    (folder / ulid / "chunks").mkdir(parents=True)
    for path in _data_files(source):
        os.link(path, folder / ulid / path.relative_to(source))
    meta = decode_meta((source / "meta.json").read_bytes())
    told = replace(meta, ulid=ulid, compaction=Compaction(1, (ulid,)))
    (folder / ulid / "meta.json").write_bytes(encode_meta(told))
    return ulid


def _data_files(block: Path) -> list[Path]:
    return [block / "index", *(block / "chunks").iterdir()]


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
