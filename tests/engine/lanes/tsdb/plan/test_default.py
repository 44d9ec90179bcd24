"""Our rules by interval: what is merged first, which blocks wait and for what, and that all of it ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core import ulids
from engine.lanes.tsdb.plan.model import (
    BlockState,
    IntervalBlock,
    IntervalGroup,
    IntervalPlan,
    SlotState,
    TakenGroup,
    VisitMark,
    may_share_series,
)
from engine.lanes.tsdb.plan.plan import plan_intervals
from engine.lanes.tsdb.plan.policy import HOUR_MS, MINUTE_MS, IntervalPolicy
from engine.lanes.tsdb.plan.slots import fits, range_of
from engine.schedule.errors import SnapshotRefused

POLICY = IntervalPolicy()
LATER = 1000 * HOUR_MS


def block(name: str, start: float, end: float, *, level: int = 1, **rest: object) -> IntervalBlock:
    """Return a block of hours, uploaded when it ended by default."""
    told = {"uploaded_at_ms": int(end * HOUR_MS), "sources": (name,)} | rest
    return IntervalBlock(
        ulid=name,
        min_time_ms=int(start * HOUR_MS),
        max_time_ms=int(end * HOUR_MS),
        level=level,
        **told,  # type: ignore[arg-type]
    )


def plan(
    blocks: Sequence[IntervalBlock], *, now: float = LATER, policy: IntervalPolicy = POLICY, **rest: object
) -> IntervalPlan:
    return plan_intervals("A", blocks, policy, now_ms=int(now * HOUR_MS), **rest)  # type: ignore[arg-type]


def told(found: IntervalPlan) -> list[str]:
    """Return the groups as ``start-end: blocks`` in hours."""
    return [
        f"{one.start_ms // HOUR_MS}-{one.end_ms // HOUR_MS}: {' '.join(each.ulid for each in one.blocks)}"
        for one in found.groups
    ]


def test_replicas_of_two_hours_are_merged_first_and_every_block_has_its_standing() -> None:
    blocks = [block(f"{name}{start}", start, start + 2) for start in (0, 2, 4) for name in "ab"] + [block("c", 12, 14)]
    found = plan(blocks, now=100)
    assert told(found) == ["0-2: a0 b0", "2-4: a2 b2", "4-6: a4 b4"]
    assert (found.compactions, found.waiting) == (5, 7), "0-12 and 0-24 come after"
    assert found.explain("a0") == "grouped: it is merged with the other blocks of the 2 h from 1970-01-01 00:00 UTC"
    assert found.explain("c") == "waiting: smaller intervals in the 24 h from 1970-01-01 00:00 UTC are merged first"
    assert found.explain("z") == "unknown: not in the snapshot"
    first = found.groups[0]
    assert first.reason == "2 blocks in the 2 h from 1970-01-01 00:00 UTC overlap in time"
    assert (first.is_vertical, first.level) == (True, 2)
    [part] = first.group_partitions()
    assert first.job_name(part).endswith("-TA-I0-7200000-P0of1")


def test_adjacent_blocks_are_merged_in_the_smallest_range_that_holds_them() -> None:
    found = plan([block("a", 0, 2, level=2), block("b", 10, 12, level=2), block("c", 12, 14, level=2)])
    assert told(found) == ["0-12: a b"]
    assert not found.groups[0].is_vertical
    assert found.groups[0].reason == "2 blocks in the 12 h from 1970-01-01 00:00 UTC follow one another"
    assert found.compactions == 2


def test_a_slot_that_is_not_over_or_has_nothing_after_it_waits() -> None:
    two = [block("a", 0, 2), block("b", 0, 1.9)]
    assert (
        plan(two, now=1.99).explain("a")
        == "waiting: the 2 h from 1970-01-01 00:00 UTC has not ended; it ends at 1970-01-01 02:00 UTC"
    )
    assert told(plan(two, now=2.5)) == ["0-2: b a"], "one of them reaches the end of the slot"
    short = [block("a", 0, 1.5), block("b", 0, 1.9)]
    found = plan(short, now=3.9)
    assert told(found) == []
    assert (found.recheck_ms, found.compactions) == (4 * HOUR_MS, 0)
    assert found.explain("b") == (
        "waiting: no block reaches the end of the 2 h from 1970-01-01 00:00 UTC yet; its blocks are merged when one "
        "does, or from 1970-01-01 04:00 UTC on"
    )
    assert told(plan([*short, block("c", 2, 2.1)], now=3.9)) == ["0-2: a b"]
    assert told(plan(short, now=4)) == ["0-2: a b"]


def test_a_lone_block_waits_in_the_smallest_interval_that_may_still_get_others() -> None:
    lone = [block("a", 0, 2)]
    assert plan(lone, now=3).explain("a") == (
        "waiting: there is no other block to merge it with in the 12 h from 1970-01-01 00:00 UTC so far"
    )
    assert plan(lone, now=25).explain("a").startswith("waiting: there is no other block to merge it with in the 24 h")
    assert plan(lone, now=48).statuses["a"].state is BlockState.FINAL


def test_what_a_job_will_make_is_something_newer_too() -> None:
    short = [block("a", 0, 1.5), block("b", 0, 1.9)]
    job = TakenGroup(range_ms=2 * HOUR_MS, start_ms=2 * HOUR_MS, ulids=("c", "d"))
    assert told(plan(short, now=3.9)) == []
    assert told(plan([*short, block("c", 2, 2.1), block("d", 2, 2.1)], now=3.9, taken=[job])) == ["0-2: a b"]


def test_a_block_with_a_time_to_come_completes_nothing_that_is_not_over() -> None:
    found = plan([block("a", 0, 1), block("b", 0, 1), block("c", 900, 902)], now=1.5)
    assert told(found) == []
    assert found.recheck_ms == 2 * HOUR_MS


def test_late_blocks_are_followed_by_others_and_make_a_slot_wait_four_delays_at_most() -> None:
    minute = 1 / 60
    late = [
        block("a", 0, 2, uploaded_at_ms=50 * HOUR_MS),
        block("b", 0, 2, uploaded_at_ms=50 * HOUR_MS + 20 * MINUTE_MS),
    ]
    found = plan([*late, block("n", 2, 4, level=2)], now=50.5)
    assert told(found) == []
    assert found.explain("a") == (
        "waiting: more blocks may follow block b in the 2 h from 1970-01-01 00:00 UTC until 1970-01-03 02:45 UTC"
    )
    assert (found.compactions, found.waiting) == (0, 0), "what only waits for time is not behind"
    above = plan([*late, block("n", 14, 16, level=2)], now=50.5)
    assert above.compactions == 0, "nor is what needs its result two ranges above"
    assert told(plan(late, now=50.75)) == ["0-2: a b"]
    trickle = [block(f"{n}", 0, 2, uploaded_at_ms=50 * HOUR_MS + n * 20 * MINUTE_MS) for n in range(6)]
    assert told(plan(trickle[:5], now=50 + 99 * minute)) == []
    assert told(plan(trickle, now=50 + 100 * minute)) == ["0-2: 0 1 2 3 4 5"]


def test_only_level_one_in_order_makes_a_slot_wait_and_no_clock_stops_it_for_ever() -> None:
    young = 50 * HOUR_MS - MINUTE_MS
    merged = [block("a", 0, 2, level=2, uploaded_at_ms=young), block("b", 0, 2, level=2, uploaded_at_ms=young)]
    assert told(plan(merged, now=50)) == ["0-2: a b"]
    unordered = [block(name, 0, 2, uploaded_at_ms=young, hints=("from-out-of-order",)) for name in "ab"]
    assert told(plan(unordered, now=50)) == ["0-2: a b"]
    from_the_future = [block(name, 0, 2, uploaded_at_ms=10**15) for name in "ab"]
    assert told(plan(from_the_future, now=50)) == ["0-2: a b"]
    by_id = [block(ulids.make(young, bytes([n] * 10)), 0, 2, uploaded_at_ms=None) for n in range(2)]
    assert told(plan(by_id, now=50)) == []
    assert len(told(plan(by_id, now=51))) == 1


def test_late_data_is_merged_where_something_is_to_merge_it_with() -> None:
    late = block("l", 0, 2)
    halves = [block(f"h{n}", 0, 2, level=2, partition=n, partitions=2) for n in range(2)]
    day = block("d", 0, 24, level=4)
    assert told(plan([late, *halves])) == ["0-2: h0 h1 l"]
    assert told(plan([late, *halves, day])) == ["0-2: h0 h1 l"]
    assert told(plan([late, day])) == ["0-24: l d"]
    assert plan([*halves]).statuses["h0"].state is BlockState.FINAL, "parts of one group have no series in common"
    short = block("s", 0, 2, level=3, time_range_ms=12 * HOUR_MS)
    assert told(plan([late, short])) == ["0-12: l s"]
    made = block("m", 1, 10, level=4, time_range_ms=24 * HOUR_MS)
    assert told(plan([late, made])) == ["0-24: l m"], "the range of the group that made it counts, not its length"
    assert told(plan([late, replace(made, time_range_ms=None)])) == ["0-12: l m"]


def test_groups_are_cut_into_parts_that_read_what_holds_something_for_them() -> None:
    policy = IntervalPolicy(partition_series=4)
    blocks = [block(f"a{n}", 0, 2, level=2, partition=n, partitions=4, series=1) for n in range(4)]
    blocks += [block(f"b{n}", 2, 4, level=2, partition=n, partitions=2, series=1) for n in range(2)]
    blocks += [block("c", 4, 6, level=2, series=1)]
    [group] = plan(blocks, policy=policy).groups
    assert not group.is_vertical
    assert [(part.partition, [one.ulid for one in part.blocks]) for part in group.group_partitions()] == [
        (0, ["a0", "a2", "b0", "c"]),
        (1, ["a1", "a3", "b1", "c"]),
    ]
    assert group.reason.endswith("follow one another, in 2 partitions by series")
    assert len({group.job_name(part) for part in group.group_partitions()}) == 2


def test_a_part_that_no_block_has_anything_for_does_not_exist() -> None:
    policy = IntervalPolicy(partition_series=1)
    quarter = [block(name, 0, 2, level=2, partition=1, partitions=4, series=2) for name in "ab"]
    [group] = plan(quarter, policy=policy).groups
    assert (group.partitions, [part.partition for part in group.group_partitions()]) == (4, [1])


def test_a_bad_block_leaves_its_group_whole_and_overlaps_what_it_makes() -> None:
    blocks = [block("a", 0, 2), block("b", 0, 2, quarantined="chunk 7 of 000001: checksum"), block("c", 0, 2)]
    found = plan(blocks)
    assert told(found) == ["0-2: a c"]
    assert found.explain("b") == "set-aside: it is quarantined: chunk 7 of 000001: checksum"
    marked = [
        block("a", 0, 1),
        block("b", 0, 1),
        block("x", 1, 2, no_compact="manual"),
        block("c", 2, 3),
        block("d", 2, 3),
    ]
    assert told(plan(marked, policy=IntervalPolicy(ranges_ms=(4 * HOUR_MS,)))) == ["0-4: a b c d"]
    assert plan(marked).explain("x") == "set-aside: it is marked as not to be compacted: manual"


def test_what_is_deleted_or_not_whole_is_never_planned() -> None:
    found = plan([block("a", 0, 2), block("b", 0, 2, is_deleted=True)], partial=["p"])
    assert told(found) == []
    assert found.statuses["b"].reason == "it is marked for deletion"
    assert found.statuses["p"].reason == "it has no meta.json: an upload is running or was interrupted"
    assert found.statuses["a"].state is BlockState.FINAL


def test_what_fits_into_no_slot_stays_as_it_is() -> None:
    found = plan([block("a", 0, 24, level=4), block("b", 23, 25), block("c", 0, 48, level=5)])
    assert told(found) == []
    assert found.statuses["b"].reason.startswith("it crosses a border of every interval")
    assert found.statuses["c"] == found.statuses["b"]
    assert found.explain("a") == "final: no block is left to merge it with, up to the 24 h from 1970-01-01 00:00 UTC"


def test_the_straddler_waits_for_the_range_that_holds_it() -> None:
    blocks = [block("a", 0, 2, level=2), block("s", 1, 3), block("b", 2, 4, level=2), block("c", 2, 4, level=2)]
    found = plan(blocks)
    assert told(found) == ["2-4: b c"]
    assert found.explain("s") == "waiting: smaller intervals in the 12 h from 1970-01-01 00:00 UTC are merged first"


def test_a_block_that_is_twice_in_a_snapshot_is_no_duplicate_of_itself() -> None:
    with pytest.raises(SnapshotRefused):
        plan([block("a", 0, 2), block("a", 0, 2)])


def test_keys_never_meet() -> None:
    blocks = [block("a", 0, 2, group_key="e1"), block("b", 0, 2, group_key="e2"), block("c", 0, 2, group_key="e2")]
    assert [(one.group_key, len(one.blocks)) for one in plan(blocks).groups] == [("e2", 2)]


def test_a_taken_group_is_left_alone_and_late_blocks_are_grouped_beside_it() -> None:
    sources = [block(f"s{n}", 2 * n, 2 * n + 2, level=2) for n in range(6)]
    job = TakenGroup(range_ms=12 * HOUR_MS, start_ms=0, ulids=tuple(one.ulid for one in sources), why="runs in job 17")
    late = [block("x", 0, 2), block("y", 0, 2), block("z", 4, 6)]
    found = plan([*sources, *late], taken=[job])
    assert told(found) == ["0-2: x y"]
    assert found.explain("s3") == "taken: the 12 h from 1970-01-01 00:00 UTC: runs in job 17"
    assert found.explain("z") == "waiting: the group of the 12 h from 1970-01-01 00:00 UTC is not done: runs in job 17"
    assert found.compactions == 3, "the one that runs, that of the late ones, and one for all of them"
    states = {(slot.range_ms // HOUR_MS, slot.start_ms): slot.state for slot in found.slots}
    assert states[12, 0] is SlotState.RUNNING
    parked = replace(job, state=SlotState.WAITING, why="parked: failed three times")
    held = plan([*sources, *late[2:], block("n", 12, 14)], taken=[parked])
    assert told(held) == []
    assert held.compactions == 1, "nothing is expected of it"
    assert held.explain("z").endswith("is not done: parked: failed three times")


def test_taken_groups_of_a_range_that_is_planned_no_more_hold_the_next_larger_one() -> None:
    jobs = [
        TakenGroup(
            range_ms=6 * HOUR_MS, start_ms=start * HOUR_MS, ulids=(f"s{start}",), state=state, why=f"job {start}"
        )
        for start, state in ((0, SlotState.READY), (6, SlotState.RUNNING))
    ]
    sources = [block("s0", 0, 6, level=3), block("s6", 6, 12, level=3)]
    found = plan([*sources, block("a", 0, 2), block("b", 2, 4)], taken=jobs)
    assert told(found) == []
    assert found.explain("a") == "waiting: the group of the 12 h from 1970-01-01 00:00 UTC is not done: job 6"
    assert found.compactions == 3, "both, and one for their results and what waits"
    assert plan(sources, taken=jobs).compactions == 3


def test_a_fresh_mark_of_another_compactor_stops_the_tenant_with_a_reason() -> None:
    blocks = [block("a", 0, 2), block("b", 0, 2), block("q", 0, 2, quarantined="bad index")]
    mark = VisitMark(place="block a", visitor="compactor-3", visited_at_ms=10 * HOUR_MS)
    found = plan(blocks, now=10.1, visits=[mark])
    assert (found.groups, found.recheck_ms) == ((), 10 * HOUR_MS + 10 * MINUTE_MS)
    why = "another compactor, compactor-3, left a visit mark on block a at 1970-01-01 10:00 UTC; stop it first"
    assert found.refusal == why
    assert found.explain("b") == f"waiting: this tenant is not planned: {why}"
    assert found.statuses["q"].state is BlockState.SET_ASIDE
    assert told(plan(blocks, now=10 + 10 / 60, visits=[mark])) == ["0-2: a b"], "expired: visit and timeout are over"
    assert told(plan(blocks, now=10.1, visits=[mark], own_visitor="compactor-3")) == ["0-2: a b"]


def test_slots_have_their_state() -> None:
    blocks = [
        block("a", 0, 2, level=2),
        block("b", 2, 4),
        block("c", 2, 4),
        block("d", 24, 48, level=4),
        block("e", 50, 52),
        block("f", 50, 52),
    ]
    found = plan(blocks, now=51)
    states = {(slot.range_ms // HOUR_MS, slot.start_ms // HOUR_MS): str(slot.state) for slot in found.slots}
    assert states == {
        (2, 0): "done",
        (2, 2): "ready",
        (2, 50): "waiting",
        (12, 0): "waiting",
        (12, 48): "waiting",
        (24, 0): "waiting",
        (24, 24): "done",
        (24, 48): "waiting",
    }
    assert {(slot.range_ms // HOUR_MS, slot.compactions) for slot in found.slots if slot.compactions} == {
        (2, 1),
        (12, 1),
    }


RANGES = (2, 4, 12)
SMALL = IntervalPolicy(ranges_ms=RANGES, consistency_delay_ms=0, partition_series=5)
parts_of = st.sampled_from([(0, 1)] * 4 + [(0, 2), (1, 2), (0, 4), (3, 4)])


@st.composite
def worlds(draw: st.DrawFn) -> list[IntervalBlock]:
    """Blocks of a few keys; some of them cut, marked, aligned to nothing, or of a lying range."""
    found = []
    for number in range(draw(st.integers(0, 14))):
        start = draw(st.integers(-14, 26))
        partition, partitions = draw(parts_of)
        mark = draw(st.sampled_from([""] * 9 + ["bad"]))
        found.append(
            IntervalBlock(
                ulid=f"{number:02}",
                min_time_ms=start,
                max_time_ms=start + draw(st.sampled_from([1, 1, 2, 2, 2, 3, 4, 12, 13])),
                level=draw(st.integers(1, 4)),
                group_key=draw(st.sampled_from(["e1", "e1", "e2"])),
                series=draw(st.integers(0, 6)),
                sources=(f"{number:02}",),
                partition=partition,
                partitions=partitions,
                time_range_ms=draw(st.sampled_from([None, None, 2, 4, 12, 99])),
                quarantined=mark,
                uploaded_at_ms=0,
            )
        )
    return found


def merged(group: IntervalGroup, *, has_range: bool) -> list[IntervalBlock]:
    """Return what the group's jobs make of it."""
    return [
        IntervalBlock(
            ulid=group.job_name(part),
            min_time_ms=min(one.min_time_ms for one in part.blocks),
            max_time_ms=max(one.max_time_ms for one in part.blocks),
            level=1 + max(one.level for one in part.blocks),
            group_key=group.group_key,
            series=max(one.series for one in part.blocks),
            sources=tuple(sorted({source for one in part.blocks for source in one.sources})),
            partition=part.partition,
            partitions=group.partitions,
            time_range_ms=group.range_ms if has_range else None,
            uploaded_at_ms=0,
        )
        for part in group.group_partitions()
    ]


def content(blocks: Iterable[IntervalBlock]) -> set[tuple[str, str, int]]:
    """Return which source's series, by hash, are in which blocks' key; marked blocks count as they are."""
    return {
        (one.group_key, source, digest)
        for one in blocks
        for source in one.sources
        for digest in range(16)
        if digest % one.partitions == one.partition
    }


def settled(blocks: Sequence[IntervalBlock]) -> bool:
    """Say whether no two blocks that fit one slot of the largest range can have the same series of the same key."""
    fitting = [one for one in blocks if not one.quarantined and range_of(one, RANGES) is not None]
    for position, one in enumerate(fitting):
        for other in fitting[position + 1 :]:
            in_one_slot = fits(
                min(one.min_time_ms, other.min_time_ms), max(one.max_time_ms, other.max_time_ms), RANGES[-1]
            )
            meets = may_share_series(one, other)
            if in_one_slot and meets and one.group_key == other.group_key:
                return False
    return True


def check_plan(blocks: Sequence[IntervalBlock], found: IntervalPlan) -> None:
    """Check what holds for every plan."""
    taken = [one.ulid for group in found.groups for one in group.blocks]
    assert len(taken) == len(set(taken)), "no two groups share a block"
    assert set(found.statuses) == {one.ulid for one in blocks}, "every block stands somewhere"
    assert {ulid for ulid, each in found.statuses.items() if each.state is BlockState.GROUPED} == set(taken)
    for group in found.groups:
        assert {one.group_key for one in group.blocks} == {group.group_key}
        assert not any(one.quarantined or one.is_deleted for one in group.blocks)
        assert all(group.start_ms <= one.min_time_ms and one.max_time_ms <= group.end_ms for one in group.blocks)
        assert len(group.blocks) > 1
        read = {one.ulid for part in group.group_partitions() for one in part.blocks}
        assert read == {one.ulid for one in group.blocks}, "every source is read by some part"


@settings(deadline=None)
@given(worlds(), st.booleans(), st.randoms())
def test_plans_end_lose_nothing_leave_nothing_unmerged_and_are_as_many_as_predicted(
    world: list[IntervalBlock], has_range: bool, random
) -> None:
    live, done, said = world, 0, None
    before = content(live)
    for _ in range(100):
        found = plan_intervals("A", live, SMALL, now_ms=10_000)
        again = plan_intervals("A", random.sample(live, len(live)), SMALL, now_ms=10_000)
        assert (again.groups, again.statuses, again.slots) == (found.groups, found.statuses, found.slots)
        check_plan(live, found)
        said = found.compactions if said is None else said
        if not found.groups:
            break
        chosen = random.sample(found.groups, random.randint(1, len(found.groups)))  # in any order, some first
        gone = {one.ulid for group in chosen for one in group.blocks}
        live = [one for one in live if one.ulid not in gone]
        live += [one for group in chosen for one in merged(group, has_range=has_range)]
        done += len(chosen)
        assert found.compactions >= len(found.groups)
    assert not found.groups, "planning comes to an end"
    assert settled(live)
    assert content(live) >= before, "nothing is lost"
    assert found.compactions == 0
    if has_range:
        assert done == said, "the number to catch up was the true one"


@settings(deadline=None)
@given(worlds(), st.integers(-10, 60))
def test_at_any_time_a_plan_keeps_its_promises_and_gives_its_next_time(world: list[IntervalBlock], now: int) -> None:
    found = plan_intervals("A", world, SMALL, now_ms=now)
    check_plan(world, found)
    if found.recheck_ms is not None:
        assert found.recheck_ms > now
        before = plan_intervals("A", world, SMALL, now_ms=found.recheck_ms - 1)
        assert before.groups == found.groups, "until then time gives nothing more to do"


@settings(deadline=None)
@given(worlds(), st.integers(0, 3))
def test_while_groups_run_nothing_else_takes_what_they_have_and_all_of_it_ends(
    world: list[IntervalBlock], keep: int
) -> None:
    live, running, said = list(world), [], None
    for _ in range(200):
        taken = [
            TakenGroup(
                range_ms=one.range_ms,
                start_ms=one.start_ms,
                group_key=one.group_key,
                ulids=tuple(each.ulid for each in one.blocks),
            )
            for one in running
        ]
        found = plan_intervals("A", live, SMALL, now_ms=10_000, taken=taken)
        said = found.compactions if said is None else said
        assert found.compactions <= said
        owned = {ulid for group in taken for ulid in group.ulids}
        assert not owned & {one.ulid for group in found.groups for one in group.blocks}
        running += found.groups
        if not running:
            break
        while len(running) > keep * bool(found.groups):
            ended = running.pop(0)
            gone = {one.ulid for one in ended.blocks}
            live = [one for one in live if one.ulid not in gone] + merged(ended, has_range=True)
            said -= 1
    assert not running
    assert settled(live)
    assert said == 0


@pytest.mark.parametrize("rules", ["default", "reference", "reference-local", "reference-partitions"])
def test_downsampled_blocks_are_left_alone_beside_raw_ones_of_the_same_time(rules: str) -> None:
    raw = [block(name, 0, 2, group_key="0@7") for name in ("a", "b")]
    coarse = [block(name, 0, 2, group_key=key) for key in ("300000@7", "3600000@7") for name in (f"c{key}", f"d{key}")]
    covered = block("e", 0, 2, group_key="300000@7", sources=(coarse[0].ulid,))
    found = plan([*raw, *coarse, covered], policy=IntervalPolicy(rules=rules))
    assert told(found) == ["0-2: a b"]
    assert found.duplicates == ()
    assert {found.explain(one.ulid) for one in [*coarse, covered]} == {
        "final: it is downsampled: its chunks have another format and are not compacted"
    }
