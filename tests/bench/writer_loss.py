"""Loss of a segment writer: ``kill -9`` of one of three under load, with the default heartbeat timeout.

Estimate: the kernel rejects connections to the dead process at once, and the push goes to the next instance; only its
own flush, half a second, is a wait. A machine that disappears does not respond: one attempt times out.

The takeover ends when every shard of the dead writer has stored a push that began after the kill. There is one sender
per shard, so the resolution is one flush.
"""

from __future__ import annotations

import logging
import random
import tempfile
import time
from pathlib import Path

import django

from tests.bench.database import embedded_postgresql, manage
from tests.bench.figures import Figures
from tests.processes import Processes, wait_until

NAME = "writer_loss"
NAMES = ("w1", "w2", "w3")
SHARDS = 24
"""Shards of a ring of three instances with the default tokens."""


def run(full: bool) -> Figures:
    """Kill a writer in each round, and count the stored profiles after all of them."""
    rounds, senders = 5 if full else 1, SHARDS
    django.setup()
    logging.getLogger("httpx").setLevel(logging.WARNING)
    from tests.faults.writer_fleet import WriterFleet, load_on

    takeovers = []
    with (
        embedded_postgresql() as url,
        tempfile.TemporaryDirectory(prefix="lithify-bench-") as home,
        Processes(quiet=True) as processes,
    ):
        manage({"DATABASE_URL": url, "LITHIFY_HOME": home}, "migrate", "--verbosity", "0")
        fleet = WriterFleet(processes, Path(home), url)
        acknowledged: set[str] = set()
        for round_number in range(rounds):
            fleet.start(*NAMES)
            victim = random.Random(round_number).choice(NAMES)
            with load_on(fleet, senders) as load:
                load.wait_for(100)
                shards = {shard for shard, owner in enumerate(fleet.ring().tables[""], 1) if owner == victim}
                killed_at = time.monotonic()
                fleet.writers[victim].kill()
                wait_until(lambda at=killed_at: time.monotonic() - at > 10, "ten seconds without it", 15)
            acknowledged |= load.acknowledged.keys()
            takeovers.append(load.takeover_seconds(shards, killed_at))
        fleet.recover_letters()
        found = fleet.found()
    return Figures(
        parameters={"rounds": rounds, "senders": senders, "writers": len(NAMES), "acknowledged": len(acknowledged)},
        figures={
            "missing": len(acknowledged - found.keys()),
            "duplicated": sum(1 for count in found.values() if count > 1),
            "takeover_s": max(takeovers),
        },
    )
