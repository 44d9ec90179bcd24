"""Level planning: the scenarios of the reference sheet (P rows) and properties of any plan."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lanes.profiles.plan.levels import cut_queue, exceeds_a_job, plan_jobs, ready_at_ms
from engine.lanes.profiles.plan.model import BlockQueue, LevelPolicy, QueuedBlock

HOUR = 3_600_000
DEFAULTS = {
    0: LevelPolicy(blocks_max=20, age_ms=36_000, spread_ms=3 * HOUR),
    1: LevelPolicy(blocks_max=10, age_ms=720_000, spread_ms=3 * HOUR),
    2: LevelPolicy(blocks_max=10, age_ms=10_800_000, spread_ms=3 * HOUR),
}
NEVER = LevelPolicy(blocks_max=3, age_ms=10**12, spread_ms=3 * HOUR)

Place = tuple[str, int, int]


def block(name: object, arrived: int, *, created: int | None = None, size: int = 1) -> QueuedBlock:
    created = arrived if created is None else created
    return QueuedBlock(id=hash(name), ulid=str(name), arrived_at_ms=arrived, created_at_ms=created, size_bytes=size)


def queue(place: Place, blocks: Sequence[QueuedBlock], policy: LevelPolicy = NEVER, **options: bool) -> BlockQueue:
    tenant, shard, level = place
    key = {"lane": "profiles", "tenant": tenant, "shard": shard, "level": level}
    return BlockQueue(id=hash(place), policy=policy, blocks=tuple(blocks), **key, **options)


def arrivals(text: str, *, first: int = 0) -> list[BlockQueue]:
    """Read "A0 B2": tenant and shard of blocks that arrive one after another, named by their number."""
    queues: dict[Place, list[QueuedBlock]] = {}
    for number, word in enumerate(text.split(), first):
        queues.setdefault((word[0], int(word[1:]), 0), []).append(block(number, number))
    return [queue(place, blocks) for place, blocks in queues.items()]


def plan(queues: Sequence[BlockQueue], now: int = 10**9, count_max: int = 100) -> list[tuple[str, list[str]]]:
    jobs = plan_jobs(queues, now_ms=now, count_max=count_max)
    return [(f"{job.tenant}{job.shard}", [source.ulid for source in job.blocks]) for job in jobs]


P1 = "A0 B2 A1 A1 B2 A1 B2 A0 A1 A0 B2 A1"
P1_JOBS = [("A1", ["2", "3", "5"]), ("B2", ["1", "4", "6"]), ("A0", ["0", "7", "9"])]


@pytest.mark.row("P1")
def test_jobs_are_planned_in_the_order_in_which_queues_became_full() -> None:
    assert plan(arrivals(P1)) == P1_JOBS


@pytest.mark.row("P2")
def test_an_unapplied_plan_is_made_again_and_followed_by_newer_jobs() -> None:
    more = [("A1", ["8", "11", "13"]), ("B2", ["10", "12", "14"])]
    assert plan(arrivals(P1 + " B2 A1 B2")) == P1_JOBS + more


@pytest.mark.row("P3")
def test_lower_levels_are_planned_first() -> None:
    high = queue(("A", 1, 1), [block(n, n) for n in range(3)])
    low = queue(("A", 1, 0), [block(n, n) for n in range(10, 13)])
    assert [job.level for job in plan_jobs([high, low], now_ms=99, count_max=9)] == [0, 1]


@pytest.mark.row("P4")
def test_a_queue_makes_a_job_when_it_is_full() -> None:
    policy = LevelPolicy(blocks_max=2, age_ms=10**9, spread_ms=HOUR)
    blocks = [block(1, 1), block(2, 2)]
    made = [plan([queue(("A", 0, 1), blocks[:count], policy)], now=5) for count in range(3)]
    assert made == [[], [], [("A0", ["1", "2"])]]


@pytest.mark.row("P6")
def test_gaps_are_filled_by_later_blocks() -> None:
    a = queue(("A", 0, 0), [block(n, n) for n in (2, 6, 7, 8)])
    b = queue(("B", 0, 0), [block(n, n) for n in (1, 3, 5)])
    assert plan([a, b]) == [("B0", ["1", "3", "5"]), ("A0", ["2", "6", "7"])]


@pytest.mark.row("P8")
def test_old_blocks_are_planned_without_a_further_arrival() -> None:
    """Differs from the reference on purpose (Q19): its flush waits for arrivals, ours looks at the time of planning."""
    policy = LevelPolicy(blocks_max=5, age_ms=5, spread_ms=HOUR)
    a = queue(("A", 0, 0), [block(1, 10), block(3, 30)], policy)
    b = queue(("B", 0, 0), [block(2, 20)], policy)
    assert plan([a, b], now=40) == [("A0", ["1", "3"]), ("B0", ["2"])]


@pytest.mark.row("P9")
def test_a_gap_in_creation_time_splits_a_queue() -> None:
    times = [n * 15_000 for n in range(10)] + [6 * HOUR + n * 15_000 for n in range(5)]
    blocks = [block(f"{n:02}", time) for n, time in enumerate(times)]
    jobs = plan([queue(("", 1, 0), blocks, DEFAULTS[0])], now=times[-1] + 36_001)
    assert [len(sources) for _, sources in jobs] == [10, 5]


@pytest.mark.row("P11", "P12")
@pytest.mark.parametrize(("waited", "sizes"), [(36_000, []), (36_001, [2])])
def test_a_part_filled_job_waits_for_its_age(waited: int, sizes: list[int]) -> None:
    blocks = [block(1, 0), block(2, 10)]
    jobs = plan([queue(("", 1, 0), blocks, DEFAULTS[0])], now=waited)
    assert [len(sources) for _, sources in jobs] == sizes


@pytest.mark.row("P13")
def test_the_rest_of_a_full_queue_waits_for_its_own_age() -> None:
    blocks = [block(f"{n:02}", n * 1000) for n in range(25)]
    young = queue(("", 1, 0), blocks, DEFAULTS[0])
    assert [len(sources) for _, sources in plan([young], now=24_000)] == [20]
    assert [len(sources) for _, sources in plan([young], now=20_000 + 36_000)] == [20]
    assert [len(sources) for _, sources in plan([young], now=20_000 + 36_001)] == [20, 5]


@pytest.mark.row("P18", "P19")
def test_planning_changes_no_state_and_names_jobs_by_their_blocks() -> None:
    queues = arrivals(P1)
    before = repr(queues)
    assert plan_jobs(queues, now_ms=99, count_max=9) == plan_jobs(queues, now_ms=99, count_max=9)
    assert repr(queues) == before


def test_a_block_older_than_the_others_by_too_much_closes_the_job() -> None:
    policy = LevelPolicy(blocks_max=9, age_ms=1, spread_ms=100)
    blocks = [block(1, 1, created=500), block(2, 2, created=400), block(3, 3, created=399), block(4, 4, created=350)]
    assert plan([queue(("A", 0, 0), blocks, policy)]) == [("A0", ["1", "2"]), ("A0", ["3", "4"])]


def test_bytes_close_a_job_before_its_count_does() -> None:
    policy = LevelPolicy(blocks_max=9, age_ms=10**12, spread_ms=HOUR, bytes_max=10)
    blocks = [block(1, 1, size=6), block(2, 2, size=4), block(3, 3, size=99), block(4, 4, size=1)]
    assert plan([queue(("A", 0, 0), blocks, policy)]) == [("A0", ["1", "2"]), ("A0", ["3"])]


def test_the_end_of_a_queue_that_was_not_read_to_its_end_is_left_alone() -> None:
    policy = LevelPolicy(blocks_max=2, age_ms=1, spread_ms=HOUR)
    blocks = [block(n, n) for n in range(3)]
    assert plan([queue(("A", 0, 0), blocks, policy, is_whole=False)]) == [("A0", ["0", "1"])]


def test_jobs_are_limited_to_the_requested_count_longest_ready_first() -> None:
    assert plan(arrivals(P1), count_max=2) == P1_JOBS[:2]
    assert plan(arrivals(P1), count_max=0) == []
    assert plan(arrivals(P1), count_max=-1) == []


def test_a_queue_is_ready_by_count_by_age_or_by_bytes() -> None:
    policy = LevelPolicy(blocks_max=3, age_ms=100, spread_ms=HOUR, bytes_max=10)
    times = {"oldest_ms": 1000, "newest_ms": 1020}
    assert ready_at_ms(policy, **times, filling_ms=None, is_heavy=False) == 1101
    assert ready_at_ms(policy, **times, filling_ms=1015, is_heavy=False) == 1015
    assert ready_at_ms(policy, **times, filling_ms=None, is_heavy=True) == 1020


@pytest.mark.parametrize(
    ("bytes_max", "blocks", "expected"), [(10, 1, False), (10, 2, True), (11, 2, False), (0, 2, False)]
)
def test_one_block_alone_is_never_too_much_for_a_job(bytes_max: int, blocks: int, expected: bool) -> None:
    policy = LevelPolicy(blocks_max=3, age_ms=100, spread_ms=HOUR, bytes_max=bytes_max)
    assert exceeds_a_job(policy, block_count=blocks, byte_count=11) is expected


blocks_strategy = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 2000), st.integers(1, 9)), max_size=40).map(
    lambda rows: [block(f"{n:03}", a, created=c, size=s) for n, (a, c, s) in enumerate(sorted(rows))]
)
policies = st.builds(
    LevelPolicy,
    blocks_max=st.integers(1, 6),
    age_ms=st.integers(0, 1500),
    spread_ms=st.integers(0, 1500),
    bytes_max=st.integers(0, 20),
)


@given(blocks_strategy, policies, st.integers(0, 4000))
def test_jobs_keep_the_policy_and_old_blocks_are_never_left_out(
    blocks: list[QueuedBlock], policy: LevelPolicy, now: int
) -> None:
    jobs = list(cut_queue(queue(("A", 1, 0), blocks, policy), now_ms=now))
    taken = [source for job in jobs for source in job.blocks]
    assert taken == blocks[: len(taken)], "jobs take the queue from its front, every block once"
    for job in jobs:
        created = [source.created_at_ms for source in job.blocks]
        assert 1 <= len(job.blocks) <= policy.blocks_max
        assert max(created) - min(created) <= policy.spread_ms
        assert len(job.blocks) == 1 or not 0 < policy.bytes_max < job.size_bytes()
    for left in blocks[len(taken) :][:1]:
        assert now <= left.arrived_at_ms + policy.age_ms


@given(st.lists(st.tuples(blocks_strategy, policies), max_size=4), st.integers(0, 4000), st.randoms())
def test_the_order_of_queues_does_not_matter(
    contents: list[tuple[list[QueuedBlock], LevelPolicy]], now: int, random
) -> None:
    queues = [queue(("A", shard, shard % 3), blocks, policy) for shard, (blocks, policy) in enumerate(contents)]
    shuffled = random.sample(queues, len(queues))
    assert plan_jobs(queues, now_ms=now, count_max=5) == plan_jobs(shuffled, now_ms=now, count_max=5)
