"""What is visible on a branch, and how it differs from its commit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.formats.ranges.layout import Kind
from engine.formats.ranges.model import Entry, Interval, prefix_end
from engine.lanes.catalog.apply import apply_layers
from engine.lanes.catalog.diff import diff_uncommitted, reset_rows
from engine.lanes.catalog.overlay import Overlay
from engine.lanes.catalog.runs import Layer, memory_run
from engine.lanes.catalog.state_reader import StateReader
from engine.lanes.catalog.view import CommonPrefix, View
from tests.engine.lanes.catalog.factories import SMALL, Changes, applied, layer, new_files, state, values_of
from tests.engine.lanes.catalog.staged import MemoryRows, overlay
from tests.engine.lanes.catalog.strategies import KEYS, LAYERS, STATES


def view(base: dict[bytes, str], *layers: object) -> View:
    files = new_files()
    return View(StateReader(files, state(files, base)), overlay(*layers))  # type: ignore[arg-type]


def listed(view: View, amount: int = 3, **asked: bytes) -> list[tuple[bytes, str]]:
    """Every item of a listing, page by page: its key and its value, "" for a common prefix."""
    found: list[tuple[bytes, str]] = []
    after: bytes | None = asked.pop("after", b"")
    while after is not None:
        page = view.list_page(after=after, amount=amount, **asked)  # type: ignore[arg-type]
        assert len(page.items) == amount or page.after is None
        found += [(item.key, item.identity.decode() if isinstance(item, Entry) else "") for item in page.items]
        after = page.after
    return found


def value(entry: Entry | None) -> str | None:
    return entry.identity.decode() if entry else None


def differences(before: dict[bytes, str], after: dict[bytes, str]) -> list[tuple[str, bytes, str | None]]:
    keys = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    kinds = {key: "added" if key not in before else "changed" if key in after else "removed" for key in keys}
    return [(kinds[key], key, after.get(key)) for key in keys]


@given(STATES, LAYERS, KEYS | st.just(b""), KEYS | st.just(b""), st.sampled_from([b"", b"b", b"ab"]), st.integers(1, 4))
@settings(deadline=None)
def test_reads_and_listings_equal_a_dictionary(
    base: dict[bytes, str],
    layers: list[tuple[Changes, list[Interval]]],
    prefix: bytes,
    after: bytes,
    delimiter: bytes,
    amount: int,
) -> None:
    branch = view(base, *layers)
    visible = applied(base, layers)
    assert {key: value(branch.get(key)) for key in [*visible, *base, prefix + b"!"]} == {
        key: visible.get(key) for key in [*visible, *base, prefix + b"!"]
    }
    expected: dict[bytes, str] = {}
    for key, letter in visible.items():
        at = key.find(delimiter, len(prefix)) if delimiter else -1
        common = key if at < 0 else key[: at + len(delimiter)]
        is_behind = key > after and not (at >= 0 and common == after)
        if key.startswith(prefix) and is_behind:
            expected[common] = letter if at < 0 else ""
    got = listed(branch, amount, prefix=prefix, after=after, delimiter=delimiter)
    assert got == sorted(expected.items())


@pytest.mark.slow
@given(STATES, LAYERS, LAYERS, KEYS | st.just(b""))
@settings(deadline=None)
def test_the_uncommitted_diff_is_that_of_two_dictionaries_with_or_without_a_snapshot(
    committed: dict[bytes, str],
    folded: list[tuple[Changes, list[Interval]]],
    layers: list[tuple[Changes, list[Interval]]],
    prefix: bytes,
) -> None:
    files = new_files()
    commit = StateReader(files, state(files, committed))
    snapshot_values = applied(committed, folded)
    snapshot = StateReader(
        files, apply_layers(files, commit.metarange, [layer(*each) for each in folded], rules=SMALL).metarange
    )
    bounds = (prefix, prefix_end(prefix))
    for base, base_values in ((None, committed), (snapshot, snapshot_values)):
        visible = applied(base_values, layers)
        found = list(diff_uncommitted(overlay(*layers), commit, base, *bounds))
        told = [(each.kind, each.key, value(each.after)) for each in found]
        assert told == [each for each in differences(committed, visible) if each[1].startswith(prefix)]
        assert [value(each.before) for each in found] == [committed.get(each.key) for each in found]
        # Undone by rows in a fresh token, exactly the keys with the prefix are as committed.
        undone = apply_layers(
            files,
            (base or commit).metarange,
            [Layer(memory_run(reset_rows(found))), *(layer(*each) for each in layers)],
            rules=SMALL,
        ).metarange
        kept = {key: letter for key, letter in visible.items() if not key.startswith(prefix)}
        assert values_of(files, undone) == kept | {k: v for k, v in committed.items() if k.startswith(prefix)}


@pytest.mark.row("B1", "B2")
def test_staged_and_base_keys_are_listed_in_key_order() -> None:
    assert listed(view({b"bar": "x"}, {b"foo": "y"})) == [(b"bar", "x"), (b"foo", "y")]


@pytest.mark.row("B3")
def test_a_staged_value_hides_the_old_one() -> None:
    branch = view({b"foo": "x"}, {b"foo": "y"})
    assert (listed(branch), value(branch.get(b"foo"))) == ([(b"foo", "y")], "y")


@pytest.mark.row("B4", "B8")
def test_a_key_of_the_base_only_is_found() -> None:
    assert value(view({b"k": "x"}, {}).get(b"k")) == "x"


@pytest.mark.row("B5", "B6", "B9")
@pytest.mark.parametrize("layers", [({b"k": None},), ({}, {b"k": None}, {b"k": "y"})])
def test_a_tombstone_of_the_newest_layer_hides_older_values(layers: tuple[Changes, ...]) -> None:
    branch = view({b"k": "x"}, *layers)
    assert branch.get(b"k") is None
    assert listed(branch) == []


@pytest.mark.row("B7")
def test_the_newest_sealed_token_decides() -> None:
    assert value(view({b"k": "x"}, {}, {b"k": "y"}, {b"k": "z"}).get(b"k")) == "y"


@pytest.mark.row("B21", "B26", "B27")
def test_a_delete_writes_a_tombstone_only_for_known_keys() -> None:
    branch = view({b"base": "x"}, {}, {b"sealed": "x"}, {b"deleted": None}, ({}, [(b"i", b"j")]))
    needed = {key: branch.needs_tombstone(key) for key in (b"base", b"sealed", b"deleted", b"inside", b"nowhere")}
    assert needed == {b"base": True, b"sealed": True, b"deleted": True, b"inside": True, b"nowhere": False}


@pytest.mark.row("B10")
def test_keys_missing_from_the_snapshot_are_not_read_from_the_commit() -> None:
    files = new_files()
    state(files, {b"k": "x"})
    snapshot = state(files, {b"other": "x"})
    assert View(StateReader(files, snapshot)).get(b"k") is None


@pytest.mark.row("B14")
def test_an_error_of_the_staged_rows_does_not_fall_through_to_the_base() -> None:
    class Broken(MemoryRows):
        def of_key(self, key: bytes) -> list[object]:  # type: ignore[override]
            raise OSError("the database is away")

    files = new_files()
    branch = View(StateReader(files, state(files, {b"k": "x"})), Overlay(Broken([])))
    with pytest.raises(OSError, match="away"):
        branch.get(b"k")


@pytest.mark.row("B29")
def test_older_rows_and_equal_values_are_not_in_the_diff() -> None:
    files = new_files()
    commit = StateReader(files, state(files, {b"a": "x", b"c": "x"}))
    changes = overlay({b"a": "x"}, {b"b": "y", b"a": "z"}, {b"c": "y", b"b": "x", b"a": None})
    assert [(each.kind, each.key) for each in diff_uncommitted(changes, commit)] == [("added", b"b"), ("changed", b"c")]


@pytest.mark.row("B30")
def test_a_tombstone_of_a_key_that_was_never_committed_is_no_change() -> None:
    files = new_files()
    commit = StateReader(files, state(files, {b"a": "x"}))
    assert list(diff_uncommitted(overlay({b"b": None}), commit)) == []


@pytest.mark.row("B31")
def test_a_diff_has_overlay_and_snapshot() -> None:
    files = new_files()
    commit = StateReader(files, state(files, dict.fromkeys((b"a", b"b", b"c", b"d", b"g"), "x")))
    snapshot = StateReader(files, state(files, {b"b": "y", b"d": "x", b"e": "y", b"g": "x"}))
    changes = overlay({b"d": "z", b"e": "z", b"f": "z", b"g": None})
    told = [(each.kind, each.key, value(each.after)) for each in diff_uncommitted(changes, commit, snapshot)]
    assert told == [
        ("removed", b"a", None),
        ("changed", b"b", "y"),
        ("removed", b"c", None),
        ("changed", b"d", "z"),
        ("added", b"e", "z"),
        ("added", b"f", "z"),
        ("removed", b"g", None),
    ]


@pytest.mark.row("B32", "B33", "B34")
@pytest.mark.parametrize(
    ("committed", "snapshot", "staged"),
    [
        pytest.param({b"k": "x"}, {b"k": "y"}, {b"k": "x"}, id="changed and put back"),
        pytest.param({}, {b"k": "y"}, {b"k": None}, id="added and deleted"),
        pytest.param({b"k": "x"}, {}, {b"k": "x"}, id="removed and put back"),
    ],
)
def test_changes_undone_by_the_overlay_are_not_in_the_diff(
    committed: dict[bytes, str], snapshot: dict[bytes, str], staged: Changes
) -> None:
    files = new_files()
    commit, folded = StateReader(files, state(files, committed)), StateReader(files, state(files, snapshot))
    assert list(diff_uncommitted(overlay(staged), commit, folded)) == []
    assert len(list(diff_uncommitted(overlay(), commit, folded))) == 1


@pytest.mark.row("B83")
def test_a_diff_whose_rows_end_in_an_error_is_an_error() -> None:
    files = new_files()
    commit = StateReader(files, state(files, {}))
    broken = Overlay(MemoryRows([({b"%03d" % number: None for number in range(600)}, ())], fails_behind=500))
    with pytest.raises(OSError, match="row 500"):
        list(diff_uncommitted(broken, commit))
    with pytest.raises(OSError, match="row 500"):
        View(commit, broken).list_page()


@pytest.mark.slow
@pytest.mark.row("B85")
def test_after_a_compaction_a_page_reads_only_what_it_shows() -> None:
    files = new_files()
    deleted = {b"gone/%06d" % number: "x" for number in range(20_000)}
    base = state(files, deleted | {b"here/%03d" % number: "x" for number in range(50)})
    tombstones: dict[bytes, str | None] = dict.fromkeys(deleted)
    before = View(StateReader(files, base), overlay(tombstones)).list_page(amount=10)
    assert (before.staged_rows, before.base_rows) >= (20_000, 20_000)
    compacted = apply_layers(files, base, [layer(tombstones)]).metarange
    after = View(StateReader(files, compacted)).list_page(amount=10)
    interval = View(StateReader(files, base), overlay(({}, [(b"gone/", b"gone0")]))).list_page(amount=10)
    assert before.items == after.items == interval.items
    for page in (after, interval):
        assert page.staged_rows == 0
        assert page.base_rows <= 13


def test_a_point_read_is_one_query_for_any_number_of_tokens() -> None:
    files = new_files()
    rows = MemoryRows([({b"k": "x"}, ())] * 100)
    branch = View(StateReader(files, state(files, {})), Overlay(rows))
    assert value(branch.get(b"k")) == "x"
    assert rows.queries == 1


def test_common_prefixes_are_passed_over_without_reading_what_they_stand_for() -> None:
    files = new_files()
    base = state(files, {b"%d/%05d" % (number % 5, number): "x" for number in range(20_000)})
    page = View(StateReader(files, base)).list_page(delimiter=b"/")
    assert page.items == tuple(CommonPrefix(b"%d/" % number) for number in range(5))
    assert page.base_rows == 10  # the first key of each, and one behind it


def test_a_common_prefix_of_the_last_keys_there_can_be_ends_the_listing() -> None:
    files = new_files()
    base = state(files, {b"a": "x", b"\xff/1": "x", b"\xff/2": "x"})
    branch = View(StateReader(files, base))
    assert branch.list_page(delimiter=b"\xff").items == (
        Entry(b"a", b"x", b"x@"),
        CommonPrefix(b"\xff"),
    )
    assert branch.list_page(delimiter=b"\xff", after=b"\xff").items == ()


def test_damage_stops_the_pages_that_need_the_range_only() -> None:
    files = new_files()
    base = state(files, {b"%03d" % number: "x" for number in range(300)})
    damaged = base.ranges[len(base.ranges) // 2]
    files.store.put(files.key(Kind.RANGE, damaged.id), b"LCAT")
    branch = View(StateReader(files, base))
    assert len(branch.list_page(amount=5).items) == 5
    assert branch.list_page(after=damaged.last_key).items
    with pytest.raises(Exception, match=damaged.id):
        branch.list_page(after=damaged.first_key)
