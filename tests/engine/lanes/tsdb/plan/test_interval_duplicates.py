"""Blocks whose data others hold as well: which of them is kept, and that data held only once is never deleted."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from engine.lanes.tsdb.plan.duplicates import find_duplicates
from engine.lanes.tsdb.plan.model import BlockState, IntervalBlock, TakenGroup
from engine.lanes.tsdb.plan.plan import plan_intervals
from engine.lanes.tsdb.plan.policy import IntervalPolicy


def block(ulid: str, sources: str, *, partition: int = 0, partitions: int = 1, key: str = "") -> IntervalBlock:
    return IntervalBlock(
        ulid=ulid,
        min_time_ms=0,
        max_time_ms=10,
        level=min(2, len(sources)),
        sources=tuple(sources),
        partition=partition,
        partitions=partitions,
        group_key=key,
    )


def told(blocks: list[IntervalBlock]) -> dict[str, str]:
    return {found.block.ulid: " ".join(found.covered_by) for found in find_duplicates(blocks)}


def test_sources_that_were_merged_and_never_marked_are_duplicates() -> None:
    assert told([block("a", "a"), block("b", "b"), block("m", "ab"), block("c", "c")]) == {"a": "m", "b": "m"}
    assert told([block("a", "a"), block("c", "c"), block("m", "ab")]) == {"a": "m"}
    assert told([block("a", "ac"), block("m", "ab")]) == {}, "only one of its sources is elsewhere"


def test_of_two_results_of_one_group_the_lower_id_stays() -> None:
    assert told([block("n", "ab"), block("m", "ab"), block("a", "a")]) == {"n": "m", "a": "m"}
    assert told([block("m", "ab"), block("z", "abc")]) == {"m": "z"}, "more sources come before the lower id"


def test_parts_of_one_group_are_no_duplicates_but_together_they_hold_what_they_were_cut_from() -> None:
    halves = [block(f"h{n}", "ab", partition=n, partitions=2) for n in range(2)]
    assert told(halves) == {}
    assert told([*halves, block("a", "a")]) == {"a": "h0 h1"}
    assert told([halves[0], block("a", "a")]) == {}, "the other half is in nobody else"
    assert told([*halves, block("q", "a", partition=3, partitions=4)]) == {"q": "h1"}
    assert told([halves[0], block("w", "ab")]) == {"h0": "w"}, "the whole stays before a part"


def test_other_keys_unknown_sources_and_quarantined_blocks_make_no_duplicates() -> None:
    assert told([block("a", "a", key="e1"), block("m", "ab", key="e2")]) == {}
    assert told([block("a", "a", key="e1"), block("m", "ab", key="e1")]) == {"a": "m"}
    assert told([block("a", ""), block("b", "")]) == {}
    assert told([block("a", "a"), replace(block("m", "ab"), quarantined="bad")]) == {}
    assert told([replace(block("a", "a"), no_compact="manual"), block("m", "ab")]) == {}, "a marked block is left alone"
    assert told([block("a", "a"), replace(block("m", "ab"), no_compact="manual")]) == {"a": "m"}


def test_a_false_claim_of_descent_deletes_no_sources() -> None:
    kept = replace(block("a", "a"), series=5, samples=90, uploaded_at_ms=0)
    big = replace(block("m", "ab"), series=5, samples=90)
    assert told([kept, big]) == {"a": "m"}
    for liar in (
        replace(big, min_time_ms=1),
        replace(big, max_time_ms=9),
        replace(big, series=4),
        replace(big, samples=89),
    ):
        assert told([kept, liar]) == {}
        found = plan_intervals("A", [kept, liar], IntervalPolicy(ranges_ms=(10,)), now_ms=10**8)
        assert "; it is kept: m descend from its sources but" in found.explain("a")
        assert {each.ulid for each in found.groups[0].blocks} == {"a", "m"}
    halves = [replace(block(f"h{n}", "ab", partition=n, partitions=2), series=3, samples=45) for n in range(2)]
    assert told([*halves, kept]) == {"a": "h0 h1"}, "parts count together"
    assert told([halves[0], replace(halves[1], samples=44), kept]) == {}


def test_a_merge_of_a_block_with_tombstones_may_have_fewer_series_and_samples() -> None:
    deleted = replace(block("a", "a"), series=5, samples=90, tombstones=3)
    assert told([deleted, replace(block("m", "ab"), series=2, samples=40)]) == {"a": "m"}
    assert told([replace(deleted, tombstones=0), replace(block("m", "ab"), series=2, samples=40)]) == {}


def test_what_a_job_has_stays() -> None:
    blocks = [block("a", "a"), block("m", "ab")]
    assert find_duplicates(blocks, keep=frozenset("a")) == []


def test_a_plan_deletes_duplicates_instead_of_merging_them() -> None:
    blocks = [block("a", "a"), block("b", "b"), block("m", "ab"), replace(block("d", "d"), is_deleted=True)]
    found = plan_intervals("A", blocks, IntervalPolicy(ranges_ms=(10,)), now_ms=10**6)
    assert [each.block.ulid for each in found.duplicates] == ["a", "b"]
    assert found.groups == ()
    assert found.explain("a") == "duplicate: all its data is in m; it is marked for deletion"
    assert found.statuses["m"].state is BlockState.FINAL


def test_a_plan_takes_nothing_for_covered_by_a_deleted_block_and_leaves_a_jobs_sources_alone() -> None:
    policy = IntervalPolicy(ranges_ms=(10,))
    gone = [block("a", "a"), replace(block("m", "ab"), is_deleted=True)]
    assert plan_intervals("A", gone, policy, now_ms=10**6).duplicates == ()
    job = TakenGroup(range_ms=10, start_ms=0, ulids=("a", "b"))
    running = [block("a", "a"), block("b", "b"), block("m", "ab")]
    assert plan_intervals("A", running, policy, now_ms=10**6, taken=[job]).duplicates == ()


parts = st.sampled_from([(0, 1), (0, 1), (0, 2), (1, 2), (0, 4), (2, 4), (1, 3)])


@given(st.lists(st.tuples(st.sets(st.sampled_from("abcd")), parts, st.booleans()), max_size=9), st.randoms())
def test_every_source_of_every_series_is_held_by_as_good_a_block_as_before(
    world: list[tuple[set[str], tuple[int, int], bool]], random
) -> None:
    blocks = [
        replace(
            block(f"{number}", "".join(sorted(sources)), partition=part[0], partitions=part[1]),
            quarantined="bad" if is_bad else "",
        )
        for number, (sources, part, is_bad) in enumerate(world)
    ]
    gone = told(blocks)
    assert told(random.sample(blocks, len(blocks))) == gone
    left = [one for one in blocks if one.ulid not in gone]

    def held(by: list[IntervalBlock]) -> set[tuple[str, int]]:
        return {
            (source, digest)
            for one in by
            if not one.quarantined
            for source in one.sources
            for digest in range(12)
            if digest % one.partitions == one.partition
        }

    assert held(left) == held(blocks)
    for ulid, holders in gone.items():
        assert not set(holders.split()) & set(gone), "what covers stays"
        assert ulid not in holders.split()
