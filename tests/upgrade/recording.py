"""Records what a build writes into the log and on the wire, so that later builds can be held to read it.

It is run by the build that is recorded, not by this one: put it into the tests of a checkout of that build, as
``tests/webadmin/test_recording.py``, and run it there with pytest; ``RECORD_TO`` names the file to write.
``format-1.json`` comes from the last build that wrote format 1 (commit 53cc6d6), ``format-2.json`` from e4bc01a.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from typing import Any

from engine.core.version import VERSION
from engine.schedule.job_names import job_name
from tests.webadmin.service import REASON, FakeWorker, Service, check_invariants
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.models import Block
from webadmin.schedule.models import Command, Job, Limits

STEPS = 45


def live_through(service: Service) -> dict[str, Any]:
    """Let two workers merge, fail, forget and come back; return an answer and a report as they went over the wire."""
    LevelPolicy.objects.update(blocks_max=2, age_seconds=20)
    Limits.objects.update(failures_max=1, queue_max=6)
    chance, crew = Random(1), [service.worker() for _ in range(2)]
    wire: dict[str, Any] = {}
    for _ in range(STEPS):
        if chance.random() < 0.35:
            service.add_segments(chance.randint(1, 3), datasets=[(chance.choice(["acme", "beta"]), "web")])
        worker = chance.choice(crew)
        updates = _reports(worker, chance, wire)
        worker.poll(*updates, capacity=chance.randint(0, 2))
        service.clock.advance(chance.choice([0.1, 5, 14]))
    check_invariants()
    return wire


def _reports(worker: FakeWorker, chance: Random, wire: dict[str, Any]) -> list[Any]:
    updates = []
    for job, given in list(worker.held.items()):
        how = chance.random()
        if how < 0.5:
            updates.append(worker.success(job))
            wire.setdefault("assignment", {"job": given.job, "spec": given.spec, "expires_in": given.expires_in})
            wire.setdefault("result", updates[-1].result)
        elif how < 0.7:
            updates.append(worker.released(job, chance.choice([None, REASON])))
        elif how < 0.8:
            updates.append(worker.running(job))
            continue
        del worker.held[job]
    return updates


def test_record(service: Service) -> None:
    wire = live_through(service)
    rows = Command.objects.order_by("index").values("index", "kind", "format_version", "change_set")
    blocks = Block.objects.values_list("shard", "ulid", "tenant__name", "level", "state", "owner_job__name")
    jobs = {job.name: job for job in Job.objects.order_by("id")}
    recorded = {
        "version": VERSION,
        "log": list(rows),
        "blocks": sorted([shard, ulid, tenant or "", *more] for shard, ulid, tenant, *more in blocks),
        "jobs": {name: [job.state, job.token, job.failures, job.parked_reason] for name, job in sorted(jobs.items())},
        "job_name_of_nothing": job_name([], tenant="", shard=0, level=0),
        **wire,
    }
    lines = [f'"{name}": {json.dumps(value)}' for name, value in recorded.items() if name != "log"]
    log = ",\n".join(json.dumps(entry) for entry in recorded["log"])
    Path(os.environ["RECORD_TO"]).write_text("{\n" + ",\n".join(lines) + ',\n"log": [\n' + log + "\n]}\n")
