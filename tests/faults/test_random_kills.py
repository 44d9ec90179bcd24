"""Everything is killed at random while work arrives. ``pytest tests/faults --rounds N`` does it N times.

The seed says who dies and after how many further requests; so a round is the same again as far as a machine allows.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.faults.all_lanes import all_lanes
from tests.faults.stack import CONTROLS, NODES, WEBS, FaultStack

KILLS_PER_ROUND = 8
REQUESTS_BETWEEN_MAX = 40
POSTGRESQL = "postgresql"
VICTIMS = (*WEBS, *NODES, *NODES, *CONTROLS, "beat", "redis", POSTGRESQL)
"""Nodes twice: they hold the most."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(1, 1 + metafunc.config.getoption("rounds", default=1)))


def test_whatever_is_killed_whenever_no_sample_is_lost_or_doubled(
    fault_stack: FaultStack, s3_credentials: None, tmp_path: Path, seed: int
) -> None:
    with all_lanes(fault_stack, tmp_path, f"random-{seed}") as lanes:
        lanes.start()
        kill_at_random(fault_stack, seed)
        lanes.check()


def kill_at_random(fault_stack: FaultStack, seed: int) -> None:
    """Kill while segments arrive, and check these."""
    chance = Random(seed)
    shards = [fault_stack.new_shard() for _ in range(3)]
    segments = {shard: fault_stack.put_segments(shard, 12) for shard in shards}
    expected = {shard: fault_stack.samples(segments[shard]) for shard in shards}
    batches = [(shard, first) for first in range(0, 12, 3) for shard in shards]

    def let_arrive() -> None:
        for shard, first in batches:
            fault_stack.register(segments[shard][first : first + 3])
            fault_stack.service.traps.wait_for_more(4)

    arriving = fault_stack.in_background(let_arrive)
    for _ in range(KILLS_PER_ROUND):
        way = chance.choice([fault_stack.service, fault_stack.around.store])
        way.traps.wait_for_more(chance.randint(1, REQUESTS_BETWEEN_MAX))
        victim = chance.choice(VICTIMS)
        if victim == POSTGRESQL:
            fault_stack.around.postgresql.crash()
        else:
            fault_stack.kill(victim)
    arriving.result()
    for shard in shards:
        fault_stack.check(shard, expected[shard])


def test_at_the_end_of_it_all_bucket_and_index_agree(fault_stack: FaultStack) -> None:
    """Whatever ran before; what dead nodes wrote and did not commit is unknown to the index, and nothing else is."""
    shard = fault_stack.new_shard()
    fault_stack.check(shard, fault_stack.write_segments(shard, 4))
    assert set(fault_stack.fsck()) <= {"unknown"}
