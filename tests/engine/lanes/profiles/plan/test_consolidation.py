"""Partial batches of several shards in one job: which join, what bounds hold, and that queue order does not matter."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lanes.profiles.plan.consolidation import join_partial_batches
from engine.lanes.profiles.plan.levels import cut_queue
from engine.lanes.profiles.plan.model import BlockQueue, LevelPolicy, PlannedJob, QueuedBlock
from engine.schedule.job_names import job_name

HOUR = 3_600_000
POLICY = LevelPolicy(
    blocks_max=5, age_ms=1000, spread_ms=HOUR, bytes_max=100, partial_batch_bytes=50, partial_batch_age_ms=100
)


def block(name: str, arrived: int, *, created: int | None = None, size: int = 1) -> QueuedBlock:
    created = arrived if created is None else created
    return QueuedBlock(id=hash(name), ulid=name, arrived_at_ms=arrived, created_at_ms=created, size_bytes=size)


def queue(
    shard: int, *blocks: QueuedBlock, tenant: str = "A", level: int = 1, policy: LevelPolicy = POLICY
) -> BlockQueue:
    return BlockQueue(
        id=shard * 10 + level, lane="profiles", tenant=tenant, shard=shard, level=level, policy=policy, blocks=blocks
    )


def seen(queues: list[BlockQueue]) -> list[BlockQueue]:
    """Return the queues as a poll reads them: each with all the others of its tenant and level."""
    return [
        replace(
            one, partial_batches=tuple(other for other in queues if other.id != one.id and other.tenant == one.tenant)
        )
        for one in queues
    ]


def plan(queues: list[BlockQueue], now: int) -> list[PlannedJob]:
    return [job for one in join_partial_batches(seen(queues), now_ms=now) for job in cut_queue(one, now_ms=now)]


def told(queues: list[BlockQueue], now: int) -> list[tuple[int, str]]:
    return [(job.shard, " ".join(source.ulid for source in job.blocks)) for job in plan(queues, now)]


def test_when_the_first_is_old_enough_the_others_join_it() -> None:
    queues = [queue(1, block("a", 0)), queue(2, block("b", 500), block("c", 600)), queue(3, block("d", 950))]
    assert told(queues, 1000) == [], "nothing goes sooner than its own age"
    assert told(queues, 1001) == [(2, "a b c")], "d is too young to join"
    assert told(queues, 1051) == [(3, "a b c d")]


def test_results_have_the_shard_of_the_newest_source_and_jobs_name_each_sources_shard() -> None:
    [job] = plan([queue(7, block("b", 5)), queue(3, block("a", 0, created=9))], 2000)
    assert (job.shard, job.source_shards()) == (3, {"b": 7})
    assert job.name == job_name(["a", "b"], tenant="A", shard=3, level=1)
    assert [(part.queue_id, part.shard, [b.ulid for b in part.blocks]) for part in job.taken()] == [
        (31, 3, ["a"]),
        (71, 7, ["b"]),
    ]
    assert job.to_json()["source_shards"] == {"b": 7}


def test_it_is_off_by_default_and_never_for_segments() -> None:
    off = replace(POLICY, partial_batch_bytes=0)
    assert told([queue(1, block("a", 0), policy=off), queue(2, block("b", 0), policy=off)], 2000) == [
        (1, "a"),
        (2, "b"),
    ]
    segments = [queue(1, block("a", 0), tenant="", level=0), queue(2, block("b", 0), tenant="", level=0)]
    assert told(segments, 2000) == [(1, "a"), (2, "b")]


def test_jobs_of_one_shard_have_no_parts() -> None:
    [job] = plan([queue(1, block("a", 0))], 2000)
    assert job.parts == ()
    assert "source_shards" not in job.to_json()


def test_what_is_no_partial_batch_lends_nothing() -> None:
    heavy = queue(2, block("b", 1000, size=50))
    full = queue(3, *(block(f"c{n}", 1000) for n in range(5)))
    assert told([queue(1, block("a", 0)), heavy, full], 1500) == [(1, "a"), (3, "c0 c1 c2 c3 c4")]


def test_count_bytes_spread_and_equal_ids_end_what_joins() -> None:
    two = [queue(1, block("a", 0), block("b", 0)), queue(2, *(block(f"c{n}", 900) for n in range(4)))]
    assert told(two, 1001) == [(2, "a b c0 c1 c2")]
    heavy = [queue(1, block("a", 0, size=40)), queue(2, block("b", 800, size=40)), queue(3, block("c", 850, size=40))]
    assert told(heavy, 1001) == [(2, "a b")]
    apart = [queue(1, block("a", 0)), queue(2, block("b", 800, created=HOUR + 1)), queue(3, block("c", 850))]
    assert told(apart, 1001) == [(3, "a c")]
    twins = [queue(1, block("a", 0)), queue(2, block("a", 800)), queue(3, block("c", 850))]
    assert told(twins, 1001) == [(3, "a c")]


def test_a_queue_that_was_full_too_gives_only_its_rest() -> None:
    lead = queue(1, *(block(f"a{n}", n) for n in range(6)))
    assert told([lead, queue(2, block("b", 3))], 1100) == [(1, "a0 a1 a2 a3 a4"), (1, "a5 b")]


worlds = st.lists(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3000), st.integers(1, 60)), min_size=1, max_size=7),
    min_size=1,
    max_size=5,
)
policies = st.builds(
    LevelPolicy,
    blocks_max=st.integers(1, 6),
    age_ms=st.integers(500, 1500),
    spread_ms=st.integers(0, 3000),
    bytes_max=st.sampled_from([0, 70]),
    partial_batch_bytes=st.sampled_from([0, 40, 200]),
    partial_batch_age_ms=st.integers(0, 500),
)


@pytest.mark.row("invariant-14", "invariant-15", "invariant-22")
@given(worlds, policies, st.integers(0, 6000), st.randoms())
def test_joined_jobs_keep_the_policy_leave_nothing_old_and_ignore_input_order(
    world: list[list[tuple[int, int, int]]], policy: LevelPolicy, now: int, random
) -> None:
    queues = [
        queue(
            shard,
            *(block(f"{shard}-{n}", a, created=c, size=s) for n, (a, c, s) in enumerate(sorted(rows))),
            policy=policy,
        )
        for shard, rows in enumerate(world)
    ]
    jobs = plan(queues, now)
    shuffled = plan(random.sample(queues, len(queues)), now)
    assert sorted(job.name for job in jobs) == sorted(job.name for job in shuffled)
    taken = [source.ulid for job in jobs for source in job.blocks]
    assert len(taken) == len(set(taken)), "a block is in one job"
    fronts = {one.id: [source.ulid for source in one.blocks] for one in queues}
    for job in jobs:
        created = [source.created_at_ms for source in job.blocks]
        assert len(job.blocks) <= policy.blocks_max
        assert max(created) - min(created) <= policy.spread_ms
        assert len(job.blocks) == 1 or not 0 < policy.bytes_max < job.size_bytes()
        for part in job.taken():
            names = [source.ulid for source in part.blocks]
            assert fronts[part.queue_id][: len(names)] == names, "every queue gives its front"
            del fronts[part.queue_id][: len(names)]
    lenders = {part.queue_id for job in jobs for part in job.parts[1:]}
    for one in queues:
        left = [source for source in one.blocks if source.ulid in fronts[one.id]]
        if left and one.id not in lenders:
            assert now <= left[0].arrived_at_ms + policy.age_ms, "who lent has its turn in the next plan"
