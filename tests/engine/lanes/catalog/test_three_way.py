"""Differences of states, and merges of three."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.formats.ranges.layout import SplitRules
from engine.formats.ranges.metarange import Metarange
from engine.lanes.catalog.diff import diff_states
from engine.lanes.catalog.files import CatalogFiles
from engine.lanes.catalog.state_reader import StateReader
from engine.lanes.catalog.three_way import (
    Compared,
    MergeConflict,
    Side,
    cherry_pick_state,
    compare,
    import_rows,
    merge_states,
    revert_state,
)
from tests.engine.lanes.catalog.factories import SMALL, new_files, ranges_of, row, state, values_of
from tests.engine.lanes.catalog.strategies import STATES

OTHER = SplitRules(bytes_min=10, bytes_max=60, every=3, borders_every=5)


class World:
    """States by their values, and merges of them."""

    def __init__(self) -> None:
        self.files: CatalogFiles = new_files()

    def reader(self, values: dict[bytes, str] | Metarange, rules: SplitRules = SMALL) -> StateReader:
        made = values if isinstance(values, Metarange) else state(self.files, values, rules)
        return StateReader(self.files, made)

    def merge(self, dest: object, source: object, base: object, **how: object) -> dict[bytes, str]:
        sides = (self.reader(each) for each in (dest, source, base))  # type: ignore[arg-type]
        return values_of(self.files, merge_states(*sides, **how))  # type: ignore[arg-type]

    def reads(self) -> int:
        requests = self.files.store.usage.requests()
        return requests.get("get", 0) + requests.get("get_range", 0)


def kinds(left: StateReader, right: StateReader) -> list[tuple[str, bytes]]:
    return [(change.kind, change.key) for change in diff_states(left, right)]


@given(STATES, STATES, st.sampled_from([SMALL, OTHER]))
@settings(deadline=None)
def test_a_diff_is_that_of_two_dictionaries_however_they_are_cut(
    left: dict[bytes, str], right: dict[bytes, str], rules: SplitRules
) -> None:
    world = World()
    found = {
        change.key: (change.before and change.before.identity.decode(), change.after and change.after.identity.decode())
        for change in diff_states(world.reader(left), world.reader(right, rules))
    }
    keys = sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key))
    assert list(found.items()) == [(key, (left.get(key), right.get(key))) for key in keys]


@pytest.mark.slow
@given(STATES, STATES, STATES, st.sampled_from([SMALL, OTHER]), st.sampled_from([None, *Side]))
@settings(deadline=None, max_examples=200)
def test_a_merge_is_that_of_three_dictionaries(
    base: dict[bytes, str], dest: dict[bytes, str], source: dict[bytes, str], rules: SplitRules, strategy: Side | None
) -> None:
    # The sides are mostly like the base, as after a few commits.
    dest, source = base | dict(list(dest.items())[:3]), base | dict(list(source.items())[:3])
    for key in list(base)[:2]:
        del dest[key]
    expected, conflicts = dict(dest), []
    for key in sorted(base.keys() | source.keys()):
        ours, theirs, old = source.get(key), dest.get(key), base.get(key)
        if ours in (old, theirs):
            continue
        if theirs != old:
            conflicts.append(key)
        if theirs == old or strategy is Side.SOURCE:
            expected.pop(key, None)
            expected |= {} if ours is None else {key: ours}
    world = World()
    sides = [world.reader(dest, rules), world.reader(source), world.reader(base)]
    assert [each.change.key for each in compare(*sides) if each.is_conflict] == conflicts
    if conflicts and strategy is None:
        with pytest.raises(MergeConflict) as error:
            merge_states(*sides)
        assert (error.value.keys, error.value.count) == (tuple(conflicts), len(conflicts))
    else:
        assert values_of(world.files, merge_states(*sides, strategy=strategy)) == dict(sorted(expected.items()))


@pytest.mark.row("B47")
def test_ranges_changed_only_by_the_source_are_reused_unread() -> None:
    world = World()
    base = ranges_of(world.files, [[b"a", b"b"], [b"c", b"d"], [b"e", b"f"]])
    source = world.files.write_metarange(
        [base.ranges[0], *ranges_of(world.files, [[b"c", b"d"]], "w").ranges, base.ranges[2]]
    )[0]
    dest = world.files.write_metarange([*base.ranges[:2], *ranges_of(world.files, [[b"e", b"f"]], "x").ranges])[0]
    before = world.reads()
    merged = merge_states(world.reader(dest), world.reader(source), world.reader(base))
    assert world.reads() == before
    assert merged.ranges == (base.ranges[0], source.ranges[1], dest.ranges[2])
    assert world.files.read_metarange(merged.id) == merged


BASE = {b"k": "x", b"other": "x"}


@pytest.mark.row("B48", "B49", "B50")
@pytest.mark.parametrize(
    ("dest", "source", "base", "by_dest", "by_source"),
    [
        pytest.param({b"k": "y"}, {b"k": "z"}, {}, {b"k": "y"}, {b"k": "z"}, id="b48 both added"),
        pytest.param({}, {b"k": "z"}, {b"k": "x"}, {}, {b"k": "z"}, id="b49 changed and deleted"),
        pytest.param({b"k": "y"}, {}, {b"k": "x"}, {b"k": "y"}, {}, id="b50 deleted and changed"),
    ],
)
def test_conflicts_are_resolved_by_the_strategy(
    dest: dict[bytes, str], source: dict[bytes, str], base: dict[bytes, str], by_dest: object, by_source: object
) -> None:
    world = World()
    with pytest.raises(MergeConflict, match=r"1 keys .* 'k'"):
        world.merge(dest, source, base)
    assert world.merge(dest, source, base, strategy=Side.DESTINATION) == by_dest
    assert world.merge(dest, source, base, strategy=Side.SOURCE) == by_source


@pytest.mark.row("B51", "B52")
@pytest.mark.parametrize("both", [{}, {b"k": "y"}])
def test_equal_changes_on_both_sides_are_no_conflict(both: dict[bytes, str]) -> None:
    world = World()
    dest = both | {b"own": "x"}
    assert world.merge(dest, both, {b"k": "x"}) == dest


@pytest.mark.row("B53", "B54")
def test_an_unchanged_destination_becomes_the_source_and_an_unchanged_source_changes_nothing() -> None:
    world = World()
    base, other = world.reader(BASE), world.reader({b"k": "y"})
    puts = world.files.store.usage.requests()["put"]
    assert merge_states(base, other, base) is other.metarange
    assert merge_states(other, base, base) is other.metarange
    assert world.files.store.usage.requests()["put"] == puts


@pytest.mark.row("B54")
def test_without_changes_of_the_source_the_destination_stays() -> None:
    world = World()
    base, other = world.reader(BASE), world.reader({b"k": "y"})
    assert merge_states(other, base, base) is other.metarange


@pytest.mark.row("B58")
def test_the_first_resolver_that_is_not_neutral_decides() -> None:
    world, asked = World(), []

    def silent(conflict: Compared) -> None:
        asked.append(conflict.change.key)

    sides: tuple[dict[bytes, str], ...] = ({b"k": "y"}, {b"k": "z"}, {})
    assert world.merge(*sides, resolvers=[silent, lambda _: Side.SOURCE], strategy=Side.DESTINATION) == {b"k": "z"}
    assert asked == [b"k"]

    def broken(_: Compared) -> Side:
        raise OSError("no answer")

    with pytest.raises(OSError, match="no answer"):
        world.merge(*sides, resolvers=[broken])


@pytest.mark.row("B59")
def test_an_import_replaces_all_keys_under_its_prefixes() -> None:
    world = World()
    dest = ranges_of(world.files, [[b"a1", b"b1"], [b"b2", b"b3"], [b"b4", b"c1"], [b"c2", b"d1"]])
    merged = import_rows(world.reader(dest), [b"a", b"c"], [row(b"a2", "new"), row(b"c1", "new")])
    assert values_of(world.files, merged) == {
        **dict.fromkeys((b"b1", b"b2", b"b3", b"b4", b"d1"), "v"),
        b"a2": "new",
        b"c1": "new",
    }


@pytest.mark.row("B60")
def test_equal_ranges_are_not_read() -> None:
    world = World()
    left = ranges_of(world.files, [[b"a"], [b"b", b"c"], [b"d"]])
    outer = ranges_of(world.files, [[b"a"], [b"d"]], "w").ranges
    right = world.files.write_metarange([outer[0], left.ranges[1], outer[1]])[0]
    before = world.reads()
    assert kinds(world.reader(left), world.reader(right)) == [("changed", b"a"), ("changed", b"d")]
    assert world.reads() - before == 8  # four ranges, an index and a block each


@pytest.mark.row("B61")
def test_equal_content_in_other_ranges_has_no_differences() -> None:
    world = World()
    left, right = (ranges_of(world.files, groups) for groups in ([[b"a", b"b"], [b"c"]], [[b"a"], [b"b", b"c"]]))
    assert left.id != right.id
    assert kinds(world.reader(left), world.reader(right)) == []


@pytest.mark.row("B62")
def test_adjacent_keys_are_compared_in_order() -> None:
    world = World()
    left = world.reader(ranges_of(world.files, [[b"k1", b"k2", b"k3"]]))
    right = world.reader(ranges_of(world.files, [[b"k3", b"k4"], [b"k5", b"k6"]], "w"))
    removed, added = [("removed", b"k1"), ("removed", b"k2")], [("added", key) for key in (b"k4", b"k5", b"k6")]
    assert kinds(left, right) == [*removed, ("changed", b"k3"), *added]


@pytest.mark.row("B63")
def test_keys_of_missing_ranges_are_removed_entries() -> None:
    world = World()
    left = ranges_of(world.files, [[bytes([key])] for key in b"abcdefg"])
    right = world.files.write_metarange([left.ranges[0], left.ranges[-1]])[0]
    assert kinds(world.reader(left), world.reader(right)) == [("removed", bytes([key])) for key in b"bcdef"]


@pytest.mark.row("B64")
def test_changes_of_the_destination_alone_are_not_in_a_compare() -> None:
    world = World()
    base = {b"changed": "x", b"removed": "x", b"both": "x", b"gone": "x"}
    dest = world.reader({b"changed": "y", b"both": "y", b"gone": "y"})
    source = world.reader({b"changed": "x", b"removed": "x", b"both": "z"})
    found = list(compare(dest, source, world.reader(base)))
    assert [(each.change.key, each.is_conflict) for each in found] == [(b"both", True), (b"gone", True)]


def test_a_revert_takes_a_commit_back_and_a_cherry_pick_takes_it_over() -> None:
    world = World()
    parent, commit = {b"a": "x", b"b": "x"}, {b"a": "y", b"c": "y"}
    head = commit | {b"later": "x"}
    readers = [world.reader(each) for each in (head, commit, parent)]
    assert values_of(world.files, revert_state(*readers)) == parent | {b"later": "x"}
    other = world.reader({b"a": "x", b"b": "x", b"mine": "x"})
    assert values_of(world.files, cherry_pick_state(other, *readers[1:])) == commit | {b"mine": "x"}
    with pytest.raises(MergeConflict):
        revert_state(world.reader({b"a": "z"}), *readers[1:])
