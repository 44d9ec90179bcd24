"""Which policies there can be, into how many parts a group is cut, and who reads which part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lanes.tsdb.plan.model import IntervalBlock, fnv1a_32, group_id
from engine.lanes.tsdb.plan.partitions import are_disjoint, may_overlap_partition, partition_count, power_of_two_count
from engine.lanes.tsdb.plan.policy import HOUR_MS, REFERENCE, IntervalPolicy
from engine.schedule.errors import PolicyRefused


def test_ranges_are_multiples_of_each_other() -> None:
    assert IntervalPolicy().ranges_ms == (2 * HOUR_MS, 12 * HOUR_MS, 24 * HOUR_MS)
    assert IntervalPolicy(ranges_ms=(20, 60, 180, 540)).ranges_ms[-1] == 540
    for ranges in [(), (0, 2), (-2,), (2, 5), (2, 2), (4, 2), (2, 0)]:
        with pytest.raises(PolicyRefused):
            IntervalPolicy(ranges_ms=ranges)


@pytest.mark.parametrize(
    "changed",
    [{"rules": "mine"}, {"replication": 0}, {"consistency_delay_ms": -1}, {"partition_series": -1}, {"groups_max": -1}],
    ids=lambda changed: next(iter(changed)),
)
def test_numbers_that_cannot_be_are_refused(changed: dict[str, object]) -> None:
    with pytest.raises(PolicyRefused, match=next(iter(changed)) if "rules" not in changed else "mine"):
        IntervalPolicy(**changed)  # type: ignore[arg-type]


def test_the_reference_policy_has_its_own_defaults() -> None:
    policy = IntervalPolicy.of_reference(groups_max=3)
    chosen = (policy.rules, policy.consistency_delay_ms, policy.replication, policy.groups_max)
    assert chosen == (REFERENCE, 0, 3, 3)


def test_fnv_is_the_published_one_and_names_intervals() -> None:
    assert [fnv1a_32(text) for text in ("", "a", "foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]
    assert group_id("user-1", 0, 7_200_000) == fnv1a_32("user-107200000")


def test_the_number_of_parts_follows_the_tighter_limit() -> None:
    policy = IntervalPolicy(partition_series=4, partition_index_bytes=100)

    def count(
        index_bytes: list[int | None], series: list[int], hours: int = 24, policy: IntervalPolicy = policy
    ) -> int:
        blocks = [
            IntervalBlock(ulid="a", min_time_ms=0, max_time_ms=1, index_bytes=size, series=number)
            for size, number in zip(index_bytes, series, strict=True)
        ]
        return partition_count(blocks, policy, hours * HOUR_MS)

    assert count([40, 50], [2, 2]) == 1, "a limit that is met is kept"
    assert count([40, 50], [2, 3]) == 2
    assert count([40, 50], [2, 1 << 60]) == 2, "an index of 50 bytes has no more than three series"
    assert count([40, None], [2, 15]) == 8, "where nobody knows how long it is, what it says counts"
    assert count([300, 101], [0, 0]) == 8
    assert count([100, None, 900], [0, 0, 0]) == 1, "summing stops where a size is not known"
    assert count([1 << 60], [1 << 60], policy=IntervalPolicy(partition_index_bytes=0)) == 1
    three = IntervalPolicy(partition_series=4, replication=3)
    assert [count([13 * 16], [13], hours, three) for hours in (1, 2, 12)] == [2, 2, 4]


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_parts_are_the_smallest_power_of_two_that_holds_all(total: int, limit: int) -> None:
    count = power_of_two_count(total, limit)
    assert count & (count - 1) == 0
    assert count * limit >= total or count == 4096
    assert count == 1 or count // 2 * limit < total


def test_a_part_of_a_cut_block_is_read_by_the_matching_parts() -> None:
    def readers(partition: int, partitions: int, count: int) -> list[int]:
        return [wanted for wanted in range(count) if may_overlap_partition(partition, partitions, wanted, count)]

    assert readers(0, 1, 4) == [0, 1, 2, 3], "never cut: everyone"
    assert readers(1, 2, 8) == [1, 3, 5, 7], "fewer than now: p, p + c, p + 2c …"
    assert readers(1, 2, 2) == [1]
    assert readers(3, 4, 2) == [1], "more than now: p modulo n"
    assert readers(5, 6, 4) == [1, 3], "counts that are no powers of two: whoever can have its series"


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**64 - 1))
def test_every_series_of_a_block_is_read_by_the_part_that_wants_it(partitions: int, count: int, digest: int) -> None:
    assert may_overlap_partition(digest % partitions, partitions, digest % count, count)


parts = st.sampled_from([1, 2, 3, 4, 6, 8]).flatmap(lambda count: st.tuples(st.integers(0, count - 1), st.just(count)))


@given(st.lists(parts, max_size=5))
def test_parts_are_disjoint_when_no_hash_is_in_two(chosen: list[tuple[int, int]]) -> None:
    everything = range(24)  # a multiple of all counts
    holders = [sum(digest % count == part for part, count in chosen) for digest in everything]
    assert are_disjoint(chosen) == (max(holders) <= 1)
