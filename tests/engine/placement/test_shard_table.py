"""Which instance hosts which shard (sheet, section 4; rows L13, L14, L34, L35; properties 7 and 8)."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.placement import reference
from engine.placement.errors import RingRefused
from engine.placement.model import SHARDS_MAX
from engine.placement.shard_table import assign_shards, ring_size

# The origin's tables of section 4, from which its first sixteen steps can be read back.
P4, P8 = [3, 1, 0, 2], [3, 6, 0, 5, 7, 4, 1, 2]
P12 = [11, 6, 0, 5, 7, 8, 9, 2, 4, 1, 3, 10]
P16 = [11, 6, 0, 5, 14, 8, 15, 2, 12, 1, 3, 13, 4, 10, 7, 9]

members = st.dictionaries(st.text("abcdef-0123456789", min_size=1, max_size=6), st.integers(1, 9), max_size=12)


def steps_behind(permutation: Sequence[int]) -> list[int]:
    """Undo the permutation from its end: each number stands where its step put it."""
    order, steps = list(permutation), []
    for index in reversed(range(len(order))):
        step = order.index(index)
        order[step] = order[index]
        steps.append(step)
        order.pop()
    return steps[::-1]


def fleet(numbers: Sequence[int], tokens: int = 4) -> dict[str, int]:
    return {f"writer-{number}": tokens for number in numbers}


def formed(numbers: Sequence[int], shards: int) -> tuple[str, ...]:
    return assign_shards([None] * shards, fleet(numbers))


def changed(before: Sequence[str], after: Sequence[str]) -> list[int]:
    return [position for position, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]


def check_table(table: Sequence[str], tokens: dict[str, int]) -> None:
    counts, total = Counter(table), sum(tokens.values())
    for instance, weight in tokens.items():
        assert len(table) * weight // total <= counts[instance] <= -(-len(table) * weight // total)
    assert set(counts) <= set(tokens)


def test_the_origins_tables_follow_from_its_steps() -> None:
    steps = steps_behind(P16)
    assert [reference.permutation(steps[:count]) for count in (4, 8, 12, 16)] == [P4, P8, P12, P16]


@pytest.mark.row("L13")
@pytest.mark.parametrize("steps", [steps_behind(P16) * 2, reference.steps(32)], ids=["origin", "documented generator"])
def test_growing_and_shrinking_back_gives_the_same_tables(steps: list[int]) -> None:
    steps = [step % (index + 1) for index, step in enumerate(steps)]
    tables = [reference.permutation(steps[:count]) for count in [*range(0, 33, 4), *range(28, -1, -4)]]
    assert tables == tables[::-1]
    for before, after in itertools.pairwise(tables[:9]):
        assert sorted(after) == list(range(len(after)))
        assert sum(old != new for old, new in zip(before, after, strict=False)) <= 4


def test_steps_are_a_documented_generator_and_stay_inside() -> None:
    numbers = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC, 0x1B39896A51A8749B]
    assert reference.steps(5) == [number * (index + 1) >> 64 for index, number in enumerate(numbers)] == [0, 0, 0, 3, 0]
    assert all(0 <= step <= index for index, step in enumerate(reference.steps(5_120)))


@pytest.mark.row("L14")
@pytest.mark.parametrize("shards", [5_000, 5_120])
def test_rings_beyond_4096_shards_work(shards: int) -> None:
    tokens = fleet(range(1_280))
    check_table(assign_shards([None] * shards, tokens), tokens)
    assert sorted(reference.permutation(reference.steps(shards))) == list(range(shards))


@pytest.mark.row("L34")
def test_a_joining_instance_takes_only_its_own_slots() -> None:
    """The name sorts before all others but one: the origin's table shifts by it."""
    before = formed(range(2, 10), 32)
    after = assign_shards(before, fleet(range(2, 11)))
    moved = changed(before, after)
    assert {after[position] for position in moved} == {"writer-10"}
    assert len(moved) == 32 // 9
    theirs = reference.slot_table(fleet(range(2, 10))), reference.slot_table(fleet(range(2, 11)))
    assert len(changed(theirs[0], theirs[1][:32])) > 4 * len(moved)


@pytest.mark.row("L35")
def test_when_the_first_instance_leaves_only_its_shards_move() -> None:
    before = formed(range(10), 40)
    after = assign_shards(before, fleet(range(1, 10)))
    assert changed(before, after) == [position for position, owner in enumerate(before) if owner == "writer-0"]


@pytest.mark.row("placement-weakness-17.3")
@pytest.mark.parametrize("position", range(100))
def test_a_join_or_leave_at_any_position_moves_only_the_unavoidable_shards(position: int) -> None:
    before = formed(range(100), 800)
    others = [number for number in range(100) if number != position]
    assert len(changed(before, assign_shards(before, fleet(others)))) == 8
    smaller = formed(others, 800)
    assert len(changed(smaller, assign_shards(smaller, fleet(range(100))))) == 8


@pytest.mark.row("placement-property-8")
def test_each_instance_hosts_exactly_its_tokens() -> None:
    tokens = {"a": 4, "b": 2, "c": 7, "d": 1}
    assert Counter(assign_shards([None] * 14, tokens)) == tokens


@pytest.mark.row("placement-property-7")
@given(members, st.integers(0, 80), st.lists(members, max_size=4))
def test_shares_are_kept_and_only_necessary_shards_move(
    first: dict[str, int], shards: int, later: list[dict[str, int]]
) -> None:
    table = assign_shards([None] * shards, first)
    for tokens in later:
        before: list[str | None] = list(table) or [None] * shards
        table = assign_shards(before, tokens)
        if not tokens:
            assert table == ()
            continue
        check_table(table, tokens)
        held, counts = Counter(before), Counter(table)
        for instance in tokens:
            stayed = sum(old == new == instance for old, new in zip(before, table, strict=True))
            assert stayed == min(held[instance], counts[instance])  # nobody gives one away and takes another


@pytest.mark.row("placement-property-7")
@given(members, st.integers(1, 60), st.integers(0, 60))
def test_a_ring_that_grows_for_the_same_instances_keeps_its_table(
    tokens: dict[str, int], shards: int, more: int
) -> None:
    before = assign_shards([None] * shards, tokens)
    after = assign_shards([*before, *[None] * more], tokens)
    total = sum(tokens.values()) or 1
    # Shares are rounded, so an instance that was rounded up may give up one.
    assert len(changed(before, after[:shards])) <= sum(shards * weight % total > 0 for weight in tokens.values())


@pytest.mark.row("placement-weakness-17.13")
def test_neighbouring_shards_are_on_different_instances() -> None:
    """Also after a hundred instances came and went in no order."""
    draw, live, born = random.Random(13), set(range(60)), 60
    table = formed(sorted(live), 480)
    for _ in range(100):
        if draw.random() < 0.5 and len(live) > 50:
            live.discard(draw.choice(sorted(live)))
        else:
            live.add(born)
            born += 1
        table = assign_shards(table, fleet(sorted(live)))
    windows = [{table[(start + i) % 480] for i in range(8)} for start in range(480)]
    assert sum(len(window) for window in windows) / 480 > 7.9
    theirs = reference.slot_table(fleet(range(120)))
    assert sum(len({theirs[(start + i) % 480] for i in range(8)}) for start in range(480)) / 480 < 7.9


def test_a_table_is_the_same_in_every_process() -> None:
    assert formed([1, 2, 3], 12) == tuple(f"writer-{number}" for number in (3, 2, 1) * 4)


@pytest.mark.parametrize(
    ("current", "tokens", "size"),
    [(0, 0, 0), (0, 4, 8), (8, 8, 8), (8, 12, 24), (800, 404, 800), (800, 4, 800), (800, 804, 1608)],
)
def test_a_ring_grows_in_large_steps_and_never_shrinks(current: int, tokens: int, size: int) -> None:
    assert ring_size(current, tokens) == size


@pytest.mark.parametrize(
    ("shards", "tokens"),
    [(8, {"": 4}), (8, {"a": 0}), (8, {"a": -1}), (8, {"a": 1 << 40}), (SHARDS_MAX + 1, {"a": 1})],
)
def test_hostile_tokens_and_sizes_are_refused(shards: int, tokens: dict[str, int]) -> None:
    with pytest.raises(RingRefused):
        assign_shards([None] * shards, tokens)
    with pytest.raises(RingRefused):
        ring_size(0, SHARDS_MAX)
