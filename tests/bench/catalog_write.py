"""Write latency of eight clients on one branch, on PostgreSQL: alone, during compactions, during constant seals.

Each client is a process with its own connection. In the second part another process compacts the branch repeatedly, at
idle priority as a node does. A compaction affects a writer only by sealing the token that it has just written to, so
that it writes again. That is rare, so the third part only seals tokens, ``ROTATIONS_PER_S`` times per second.

``blocked_p99_ms``: of the writes that conflicted with a rotation, the time from the start of a write to the start of
its successful try. ``blocked_count`` is their number, ``blocked_share_compacted`` their share of all writes in the
second part. ``p99_ms_alone`` and ``p99_ms_compacted`` are of all writes, from start to end, and include waits
elsewhere, such as for a lock or in the second try.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from tests.bench.catalog_world import compact, measured, new_repository, row, set_up
from tests.bench.figures import Figures
from tests.processes import ROOT

NAME = "catalog_write"
CLIENTS = 8
ENTRIES = 50_000
SECONDS, SECONDS_FULL = 8.0, 60.0
READY = "ready\n"
REST_SECONDS = 0.5
"""Pause between two compactions; in production the sensor waits for minutes."""
ROTATIONS_PER_S = 50


def run(full: bool) -> Figures:
    """Run the benchmark in subprocesses."""
    seconds = SECONDS_FULL if full else SECONDS
    figures = measured("tests.bench.catalog_write", "measure", seconds)
    return Figures(parameters={"clients": CLIENTS, "entries": ENTRIES, "seconds": seconds}, figures=figures)


def measure(seconds: float) -> dict[str, float]:
    """Return the figures."""
    set_up()
    repository = new_repository(row(number) for number in range(ENTRIES))
    alone = _told(_clients(repository.pk, 0, seconds))
    compactions, *during = _told([_start("compactor", repository.pk, 0, seconds), *_clients(repository.pk, 1, seconds)])
    rotations, *sealed = _told([_start("rotator", repository.pk, 0, seconds), *_clients(repository.pk, 2, seconds)])
    blocked = [each for part in (*during, *sealed) for each in part["blocked_ms"]]
    assert compactions
    assert rotations
    rates = [sum(part["rate"] for part in parts) for parts in (alone, during)]
    return {
        "writes_per_s": rates[0],
        "ratio_during_compaction": rates[1] / rates[0],
        "blocked_p99_ms": _p99(blocked),
        "blocked_count": len(blocked),
        "blocked_share_compacted": sum(len(part["blocked_ms"]) for part in during)
        / sum(len(part["ms"]) for part in during),
        "p99_ms_alone": _p99([each for part in alone for each in part["ms"]]),
        "p99_ms_compacted": _p99([each for part in during for each in part["ms"]]),
    }


def _p99(values: Sequence[float]) -> float:
    assert len(values) >= 100, f"{len(values)} values: the 99th of a hundred is not known"
    return sorted(values)[len(values) * 99 // 100]


def _clients(repository_id: int, phase: int, seconds: float) -> list[subprocess.Popen[str]]:
    return [_start("client", repository_id, 100 * phase + number, seconds) for number in range(CLIENTS)]


def _start(*arguments: object) -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "tests.bench.catalog_write", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(program, cwd=ROOT, env=os.environ, stdin=pipe, stdout=pipe, text=True)


def _told(processes: Sequence[subprocess.Popen[str]]) -> list[Any]:
    """Start all processes at once when each is ready; return the result of each."""
    for each in processes:
        assert each.stdout is not None
        assert each.stdout.readline() == READY, "a process did not start"
    for each in processes:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    return [json.loads(each.communicate()[0]) for each in processes]


def _wait_for_others() -> None:
    from django.db import connection

    connection.ensure_connection()
    print(READY, end="", flush=True)
    sys.stdin.readline()


def client(repository_id: int, number: int, seconds: float) -> dict[str, Any]:
    """Write values for ``seconds``; return the rate, the latencies, and the time lost in conflicts with rotations."""
    set_up()
    from engine.formats.ranges.object_entry import ObjectEntry
    from webadmin.lanes.catalog.models import Repository
    from webadmin.lanes.catalog.services import write_objects

    repository = Repository.objects.get(pk=repository_id)
    lost: list[float] = []
    holds = write_objects.is_write_valid

    def noted(*asked: Any, **told: Any) -> bool:
        held = holds(*asked, **told)
        if not held:
            lost.append(time.perf_counter())
        return held

    write_objects.is_write_valid = noted
    _wait_for_others()
    took, blocked = [], []
    begun = time.perf_counter()
    while (now := time.perf_counter()) < begun + seconds:
        value = ObjectEntry(address=f"data/{len(took)}", size=1, checksum=f"{number}-{len(took)}", written_at=now)
        write_objects.put_entry(repository, "main", b"client=%d/%08d" % (number, len(took)), value)
        ended = time.perf_counter()
        took.append((ended - now) * 1000)
        if lost:
            blocked.append((lost[-1] - now) * 1000)
            lost.clear()
    return {"rate": len(took) / (time.perf_counter() - begun), "ms": took, "blocked_ms": blocked}


def compactor(repository_id: int, seconds: float) -> int:
    """Compact repeatedly for ``seconds``; return the number of compactions."""
    os.nice(19)
    set_up()
    from webadmin.lanes.catalog.models import Repository

    repository = Repository.objects.get(pk=repository_id)
    _wait_for_others()
    ends, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < ends:
        compact(repository, "main")
        count += 1
        time.sleep(REST_SECONDS)
    return count


def rotator(repository_id: int, seconds: float) -> int:
    """Seal the staging token at a fixed rate, as a compaction does at its start; return the number of seals."""
    set_up()
    from webadmin.lanes.catalog.models import Repository
    from webadmin.lanes.catalog.services.branches import find_branch
    from webadmin.lanes.catalog.services.records import seal_branch
    from webadmin.lanes.catalog.states import Why

    branch = find_branch(Repository.objects.get(pk=repository_id), "main")
    _wait_for_others()
    ends, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < ends:
        seal_branch(branch.pk, why=Why.COMPACTION)
        count += 1
        time.sleep(1 / ROTATIONS_PER_S)
    return count


if __name__ == "__main__":
    what, *told = sys.argv[1:]
    if what == "measure":
        print(json.dumps(measure(float(told[0]))))
    elif what == "client":
        print(json.dumps(client(int(told[0]), int(told[1]), float(told[2]))))
    else:
        action = {"compactor": compactor, "rotator": rotator}[what]
        print(json.dumps(action(int(told[0]), float(told[2]))))
