"""Which block is blamed: any bad one among many is found in a bounded number of attempts, and never a healthy one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.schedule.isolation import (
    OBJECT_NOT_FOUND,
    SINGLE_RUNS_MAX,
    SINGLE_RUNS_MIN,
    Breakage,
    FailedRun,
    QuarantineBlock,
    QuarantineMissing,
    RecentRun,
    RetrySingle,
    Split,
    Suspect,
    Wait,
    find_breakages,
    judge,
)

RUNS = tuple(FailedRun(error_class="Truncated", build="b1", object="elsewhere") for _ in range(SINGLE_RUNS_MIN))
BROKEN = Breakage(build="b1", error_class="Truncated", failed_jobs=9, jobs=10)


@dataclass
class World:
    """Blocks by number, some of them bad, and a build that merges what has no bad block (or nothing)."""

    bad: frozenset[int]
    names: Callable[[tuple[int, ...], frozenset[int]], str] = lambda blocks, bad: ""
    works: bool = True
    is_control_apart: bool = False  # another job of this kind is merged meanwhile
    attempts: int = 0
    merged: set[int] = field(default_factory=set)
    quarantined: set[int] = field(default_factory=set)
    left: list[Wait] = field(default_factory=list)

    def isolate(self, blocks: tuple[int, ...], *, is_part: bool = False) -> None:
        """Run a job as often as it may, and do what is decided about it if it fails."""
        if self.works and not self.bad & set(blocks):
            self.attempts += 1
            self.merged |= set(blocks)
            return
        self.attempts += SINGLE_RUNS_MIN
        run = FailedRun(error_class="Truncated", build="b1", object=self.names(blocks, self.bad))
        decision = self._judge(blocks, run, is_part)
        if isinstance(decision, Split):
            assert sorted(place for part in decision.parts for place in part) == list(range(len(blocks)))
            for part in sorted(decision.parts, key=lambda part: bool({blocks[place] for place in part} & self.bad)):
                self.isolate(tuple(blocks[place] for place in part), is_part=True)
        elif isinstance(decision, QuarantineBlock):
            self.quarantined |= set(blocks)
        else:
            assert isinstance(decision, Wait)
            self.left.append(decision)

    def _judge(self, blocks: tuple[int, ...], run: FailedRun, is_part: bool) -> object:
        control = frozenset({"b1"}) if self.merged or self.is_control_apart else frozenset()
        keys = tuple(str(block) for block in blocks)
        return judge(Suspect(keys=keys, runs=(run,) * SINGLE_RUNS_MIN, is_part=is_part, control_builds=control))


def bound(count: int, bad_count: int = 1) -> int:
    """Attempts for each bad block: at each of the splits its half fails, and the other half may be merged."""
    return bad_count * (SINGLE_RUNS_MIN + 1) * (2 + math.ceil(math.log2(count))) + SINGLE_RUNS_MIN


def never(blocks: tuple[int, ...], bad: frozenset[int]) -> str:
    return ""


def rightly(blocks: tuple[int, ...], bad: frozenset[int]) -> str:
    return str(min(bad & set(blocks), default=blocks[0]))


def wrongly(blocks: tuple[int, ...], bad: frozenset[int]) -> str:
    return str(min(set(blocks) - bad, default=blocks[0]))


@given(count=st.integers(2, 200), place=st.integers(0, 199), names=st.sampled_from([never, rightly, wrongly]))
def test_one_bad_block_among_many_is_found_in_bounded_attempts(count: int, place: int, names) -> None:
    world = World(bad=frozenset({place % count}), names=names)
    world.isolate(tuple(range(count)))
    assert world.quarantined == world.bad
    assert world.merged == set(range(count)) - world.bad
    assert world.attempts <= bound(count)


@given(st.data(), st.integers(1, 60))
def test_nothing_healthy_is_quarantined_however_many_are_bad(data: st.DataObject, count: int) -> None:
    bad = frozenset(data.draw(st.sets(st.integers(0, count - 1))))
    names = data.draw(st.sampled_from([never, rightly, wrongly]))
    world = World(bad=bad, names=names, is_control_apart=data.draw(st.booleans()))
    world.isolate(tuple(range(count)))
    assert world.quarantined <= bad
    assert world.merged == set(range(count)) - bad
    assert len(world.quarantined) + len(world.left) == len(bad), "what is not blamed yet stays parked, alone"
    assert world.quarantined == bad or not world.is_control_apart
    assert world.attempts <= bound(max(count, 2), max(1, len(bad)))


@given(count=st.integers(1, 100), names=st.sampled_from([never, rightly, wrongly]))
def test_a_build_that_merges_nothing_quarantines_nothing(count: int, names) -> None:
    world = World(bad=frozenset(), names=names, works=False)
    world.isolate(tuple(range(count)))
    assert (world.quarantined, world.merged) == (set(), set())
    assert len(world.left) == count


def test_a_block_that_fails_alone_needs_a_control_of_the_same_build() -> None:
    alone = Suspect(keys=("a",), runs=RUNS, control_builds=frozenset({"b2"}))
    assert isinstance(judge(alone), Wait)
    decision = judge(Suspect(keys=("a",), runs=RUNS, control_builds=frozenset({"b1"})))
    assert decision == QuarantineBlock(RUNS[-1], SINGLE_RUNS_MIN)


@pytest.mark.parametrize(
    "runs",
    [
        RUNS[:1],
        (FailedRun(error_class="Truncated", build="b0"), RUNS[0]),
        (FailedRun(error_class="Timeout", build="b1"), RUNS[0]),
    ],
)
def test_two_runs_count_only_with_one_build_and_one_error(runs: tuple[FailedRun, ...]) -> None:
    decision = judge(Suspect(keys=("a",), runs=runs, control_builds=frozenset({"b0", "b1"})))
    assert isinstance(decision, Wait if len(runs) == 1 else RetrySingle)


def test_runs_with_different_failures_end_with_an_operator() -> None:
    runs = tuple(FailedRun(error_class="Truncated", build=f"b{n}") for n in range(SINGLE_RUNS_MAX))
    assert isinstance(judge(Suspect(keys=("a",), runs=runs[:-1])), RetrySingle)
    assert isinstance(judge(Suspect(keys=("a",), runs=runs)), Wait)


def test_a_job_without_blocks_or_failures_is_left_alone() -> None:
    assert isinstance(judge(Suspect(keys=(), runs=RUNS, control_builds=frozenset({"b1"}))), Wait)
    assert isinstance(judge(Suspect(keys=("a", "b"), runs=())), Wait)


def test_the_named_block_is_tried_alone_first() -> None:
    runs = (FailedRun(error_class="Truncated", build="b1", object="b"),)
    assert judge(Suspect(keys=("a", "b", "c"), runs=runs)) == Split(((1,), (0, 2)))


def test_a_part_is_halved_whatever_its_error_names() -> None:
    runs = (FailedRun(error_class="Truncated", build="b1", object="a"),)
    assert judge(Suspect(keys=("a", "b", "c", "d"), runs=runs, is_part=True)) == Split(((0, 1), (2, 3)))


def test_a_silent_death_is_bisected_too() -> None:
    runs = (FailedRun(error_class="LeaseExpired", build="b1"),)
    assert judge(Suspect(keys=("a", "b"), runs=runs)) == Split(((0,), (1,)))


@pytest.mark.parametrize("keys", [("a",), ("a", "b")])
def test_a_broken_build_splits_and_quarantines_nothing(keys: tuple[str, ...]) -> None:
    suspect = Suspect(keys=keys, runs=RUNS, control_builds=frozenset({"b1"}), missing=frozenset(keys))
    decision = judge(suspect, [BROKEN])
    assert isinstance(decision, Wait)
    assert "merging is broken in b1: 9 of 10" in decision.why
    assert not isinstance(judge(suspect, [Breakage(build="b0", error_class="X", failed_jobs=9, jobs=9)]), Wait)


def test_missing_objects_are_set_aside_and_the_rest_is_merged() -> None:
    run = FailedRun(error_class=OBJECT_NOT_FOUND, build="b1", object="b")
    suspect = Suspect(keys=("a", "b", "c"), runs=(run,), missing=frozenset({"b"}))
    assert judge(suspect) == QuarantineMissing((1,), run)


def test_an_error_alone_makes_no_object_missing() -> None:
    run = FailedRun(error_class=OBJECT_NOT_FOUND, build="b1", object="b")
    assert judge(Suspect(keys=("a", "b", "c"), runs=(run,))) == Split(((1,), (0, 2)))


def test_a_missing_object_without_a_not_found_error_is_not_blamed() -> None:
    assert judge(Suspect(keys=("a", "b"), runs=RUNS, missing=frozenset({"b"}))) == Split(((0,), (1,)))


def runs_of(failing: int, working: int, *, error_class: str = "Truncated", build: str = "b1") -> list[RecentRun]:
    bad = [RecentRun(family=number, build=build, error_class=error_class) for number in range(failing)]
    good = [RecentRun(family=1000 + number, build=build, error_class=None) for number in range(working)]
    return bad + good


@pytest.mark.parametrize(
    ("failing", "working", "is_broken"), [(20, 80, False), (21, 79, True), (2, 0, False), (3, 0, True)]
)
def test_more_than_a_fifth_with_one_error_is_a_broken_build(failing: int, working: int, is_broken: bool) -> None:
    found = find_breakages(runs_of(failing, working))
    assert bool(found) is is_broken
    if is_broken:
        assert (found[0].build, found[0].failed_jobs, found[0].jobs) == ("b1", failing, failing + working)


def test_different_errors_do_not_add_up_and_builds_are_judged_apart() -> None:
    mixed = runs_of(15, 70) + [RecentRun(family=500 + n, build="b1", error_class="Other") for n in range(15)]
    assert find_breakages(mixed) == ()
    [broken] = find_breakages(mixed + runs_of(5, 0, build="b2"))
    assert broken.build == "b2"


def test_a_job_in_parts_counts_as_one() -> None:
    parts = [RecentRun(family=1, build="b1", error_class="Truncated") for _ in range(50)]
    assert find_breakages(parts) == ()
