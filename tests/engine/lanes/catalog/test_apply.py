"""Layers applied on a metarange: what comes out, what is rewritten, and that parts do not show."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.formats.ranges.layout import Kind, SplitRules
from engine.formats.ranges.metarange import Metarange
from engine.formats.ranges.model import Interval, IntervalTombstone, StagedRecord
from engine.lanes.catalog.apply import ApplyInconsistent, apply_layers, finish, run_unit
from engine.lanes.catalog.apply_plan import plan_apply
from engine.lanes.catalog.files import CatalogFiles
from engine.lanes.catalog.runs import Layer, RunInfo, memory_layer, stored_run, write_run
from tests.engine.lanes.catalog.factories import (
    SMALL,
    Changes,
    applied,
    entries_of,
    layer,
    new_files,
    ranges_of,
    row,
    state,
    values_of,
)
from tests.engine.lanes.catalog.strategies import LAYERS, STATES

NEVER = SplitRules(bytes_min=1 << 30, bytes_max=1 << 30, every=1 << 40, borders_every=1 << 20)
"""Cuts only at borders of units: what is small stays apart unless it is taken in."""


def ids(metarange: Metarange) -> list[str]:
    return [info.id for info in metarange.ranges]


@given(STATES, LAYERS, st.sampled_from([1, 60, 1 << 20]))
@settings(deadline=None)
def test_the_result_equals_a_dictionary_for_any_cut_into_units(
    values: dict[bytes, str], layers: list[tuple[Changes, list[Interval]]], unit_bytes: int
) -> None:
    files = new_files()
    base = state(files, values)
    made = [layer(*each) for each in layers]
    result = apply_layers(files, base, made, rules=SMALL, unit_bytes=unit_bytes)
    expected = applied(values, layers)
    assert values_of(files, result.metarange) == expected
    for info in result.metarange.ranges:
        files.verify(info)
    assert result.counts.added == len(expected.keys() - values.keys())
    assert result.counts.removed == len(values.keys() - expected.keys())
    # Once more, by parts in another order, from a plan made anew: the same bytes.
    again = plan_apply(base, made, SMALL, unit_bytes)
    parts = [run_unit(files, base, made, unit, rules=SMALL, memory_bytes=1) for unit in reversed(again.units)]
    assert finish(files, base, again, parts).metarange == result.metarange
    # In two steps: the same content.
    halfway = apply_layers(files, base, made[len(made) // 2 :], rules=SMALL).metarange
    stepped = apply_layers(files, halfway, made[: len(made) // 2], rules=SMALL).metarange
    assert values_of(files, stepped) == expected


def test_parts_in_parallel_give_the_same_bytes() -> None:
    files, draw = new_files(), random.Random(8)
    rules = SplitRules(bytes_min=2_000, bytes_max=20_000, every=64, borders_every=4)
    base = state(files, {b"%05d" % number: "v" for number in range(20_000)}, rules)
    changes = layer({b"%05d+" % number: draw.choice(["w", None, "v"]) for number in draw.sample(range(30_000), 9_000)})
    alone = apply_layers(files, base, [changes], rules=rules, unit_bytes=30_000)
    with ThreadPoolExecutor(4) as pool:
        shared = apply_layers(
            files,
            base,
            [changes],
            rules=rules,
            unit_bytes=30_000,
            memory_bytes=1,
            run_all=lambda f, units: pool.map(f, units),
        )
    assert len(plan_apply(base, [changes], rules, 30_000).units) > 5
    assert shared == alone


def test_a_first_import_is_cut_at_keys_chosen_by_their_hash() -> None:
    files = new_files()
    empty, _ = files.write_metarange([])
    rules = SplitRules(bytes_min=1_000, bytes_max=10_000, every=16, borders_every=16)
    changes = layer({b"%05d" % number: "v" for number in range(20_000)})
    units = plan_apply(empty, [changes], rules, 20_000).units
    assert len(units) > 5
    whole = apply_layers(files, empty, [changes], rules=rules)
    assert apply_layers(files, empty, [changes], rules=rules, unit_bytes=20_000).metarange == whole.metarange


@pytest.mark.row("B36")
def test_only_changed_ranges_are_rewritten() -> None:
    files = new_files()
    base = ranges_of(files, [[b"a", b"b", b"c"], [b"d"], [b"e"]])
    result = apply_layers(files, base, [layer({b"b": None, b"e": None})], rules=SplitRules(bytes_min=0))
    assert values_of(files, result.metarange) == {b"a": "v", b"c": "v", b"d": "v"}
    assert result.metarange.ranges[1] == base.ranges[1]
    assert len(result.metarange.ranges) == 2
    assert (result.counts.removed, result.ranges_kept, len(result.written)) == (2, 1, 1)


@pytest.mark.row("B37")
def test_an_equal_value_keeps_the_record_of_the_base() -> None:
    files = new_files()
    base = state(files, {b"a": "v", b"b": "v"}, NEVER)
    result = apply_layers(files, base, [layer({b"a": "v", b"b": "w"}, address="new")], rules=NEVER)
    assert [entry.payload for entry in entries_of(files, result.metarange)] == [b"v@", b"w@new"]
    assert (result.counts.changed, result.counts.added, result.counts.removed) == (1, 0, 0)


@pytest.mark.row("B38")
def test_keys_after_the_last_range_are_a_new_range() -> None:
    files = new_files()
    base = ranges_of(files, [[b"a", b"b"], [b"c"]])
    result = apply_layers(files, base, [layer({b"x": "v", b"y": "v"})], rules=SplitRules(bytes_min=0))
    assert ids(result.metarange)[:2] == ids(base)
    assert result.metarange.ranges[2].rows == result.counts.added == 2


@pytest.mark.row("B39", "B35")
def test_without_a_change_the_result_is_the_base() -> None:
    files = new_files()
    base, empty = state(files, {b"a": "v"}), files.write_metarange([])[0]
    puts = files.store.usage.requests()["put"]
    assert apply_layers(files, base, []).metarange == base
    assert apply_layers(files, base, [layer({b"a": "v"}, address="new")], rules=SMALL).metarange == base
    only_tombstones = apply_layers(files, empty, [layer({b"a": None, b"b": None})])
    assert only_tombstones.metarange == empty
    assert only_tombstones.counts.is_without_change
    assert files.store.usage.requests()["put"] == puts


@pytest.mark.row("B40")
def test_a_tombstone_before_the_first_key_reads_no_range() -> None:
    files = new_files()
    base = ranges_of(files, [[b"b"], [b"c"]])
    reads = files.store.usage.requests().get("get", 0)
    assert apply_layers(files, base, [layer({b"a": None, b"bb": None})]).metarange == base
    assert files.store.usage.requests().get("get", 0) == reads


@pytest.mark.row("B41")
def test_a_range_whose_keys_are_all_deleted_disappears() -> None:
    files = new_files()
    base = ranges_of(files, [[b"a"], [b"b", b"c"], [b"d"]])
    result = apply_layers(files, base, [layer({b"b": None, b"c": None})], rules=SplitRules(bytes_min=0))
    assert ids(result.metarange) == [ids(base)[0], ids(base)[2]]


@pytest.mark.row("B79")
def test_the_newest_layer_decides() -> None:
    files = new_files()
    base = state(files, {b"b": "x", b"c": "x"})
    result = apply_layers(files, base, [layer({b"a": "y"}), layer({b"a": "x", b"b": None})])
    assert values_of(files, result.metarange) == {b"a": "y", b"c": "x"}


@pytest.mark.row("B83")
def test_a_layer_with_a_read_error_is_not_applied() -> None:
    def records() -> object:
        for number in range(500):
            yield StagedRecord(b"%05d" % number, number, b"v")
        raise OSError("row 500")

    with pytest.raises(OSError, match="row 500"):
        memory_layer(records())  # type: ignore[arg-type]


@pytest.mark.row("B84")
def test_many_small_appends_become_few_ranges() -> None:
    files = new_files()
    metarange, _ = files.write_metarange([])
    rules = SplitRules(bytes_min=20_000, bytes_max=100_000, every=64, borders_every=16)
    written = changed = most = 0
    for commit in range(1_500):
        changes = {b"%05d-%02d" % (commit, number): "v" for number in range(20)}
        result = apply_layers(files, metarange, [layer(changes)], rules=rules)
        metarange = result.metarange
        written += sum(info.size for info in metarange.ranges if info.id in result.written)
        changed += result.counts.bytes_changed
        most = max(most, len(metarange.ranges))
    assert len(metarange.ranges) <= most < 40
    assert sum(info.rows for info in metarange.ranges) == 30_000
    assert written < 6 * changed


def test_ranges_inside_a_deleted_interval_are_dropped_unread() -> None:
    files = new_files()
    base = ranges_of(files, [[b"a1", b"b1"], [b"b2", b"b3"], [b"b4", b"b5"], [b"b6", b"c1"]])
    reads = files.store.usage.requests().get("get", 0)
    result = apply_layers(files, base, [layer({b"b5": "new"}, [(b"b", b"c")])], rules=SplitRules(bytes_min=0))
    assert values_of(files, result.metarange) == {b"a1": "v", b"b5": "new", b"c1": "v"}
    assert result.ranges_dropped == 1
    assert (result.counts.removed, result.counts.changed) == (5, 1)
    assert files.store.usage.requests()["get"] - reads == 3


def test_inside_a_token_the_higher_generation_decides() -> None:
    records = [StagedRecord(b"a1", 1, b"v"), StagedRecord(b"a2", 9, b"v"), StagedRecord(b"b", 1, b"v")]
    made = memory_layer(records, [IntervalTombstone(b"a", b"b", 5), IntervalTombstone(b"x", None, 2)])
    files = new_files()
    base = state(files, {b"a1": "x", b"a3": "x", b"x": "x", b"y": "x"})
    assert values_of(files, apply_layers(files, base, [made]).metarange) == {b"a2": "v", b"b": "v"}


def test_a_small_change_rewrites_few_bytes() -> None:
    files = new_files()
    rules = SplitRules(bytes_min=2_000, bytes_max=16_000, every=256)
    base = state(files, {b"%06d" % number: "v" * 20 for number in range(50_000)}, rules)
    changes = {
        b"%06d" % number: "w" * 20 for start in range(0, 50_000, 10_000) for number in range(start, start + 1_000)
    }
    result = apply_layers(files, base, [layer(changes)], rules=rules)
    assert result.bytes_written < 3 * result.counts.bytes_changed
    # Put back, all but the neighbourhood of the changes has its old files again.
    back = apply_layers(files, result.metarange, [layer(dict.fromkeys(changes, "v" * 20))], rules=rules).metarange
    assert len(set(ids(back)) & set(ids(base))) > 0.9 * len(base.ranges)


def test_a_run_in_the_store_is_read_like_one_in_memory() -> None:
    files = new_files()
    base = state(files, {b"%04d" % number: "v" for number in range(2_000)})
    changes = {b"%04d" % number: "w" * 60 if number % 3 else None for number in range(0, 2_000, 2)}
    written = bytearray()
    info: RunInfo = write_run((row(*each) for each in changes.items()), written.extend)
    files.store.put("scratch/run", bytes(written))
    stored = Layer(stored_run(files.store, "scratch/run", info))
    assert stored.run.info.rows == len(changes)
    expected = apply_layers(files, base, [layer(changes)], rules=SMALL)
    assert apply_layers(files, base, [stored], rules=SMALL) == expected
    files.store.put("scratch/run", bytes(written[:50]) + b"!" + bytes(written[51:]))
    with pytest.raises(Exception, match="scratch/run"):
        apply_layers(files, base, [Layer(stored_run(files.store, "scratch/run", info))], rules=SMALL)


def test_a_part_that_is_missing_is_noticed() -> None:
    files: CatalogFiles = new_files()
    base = state(files, {b"a": "v"})
    changes = [layer({b"b": "v"})]
    with pytest.raises(ApplyInconsistent):
        finish(files, base, plan_apply(base, changes), [])


def test_files_that_exist_are_written_again_by_name_only() -> None:
    files = new_files()
    base = state(files, {b"a": "v"})
    before = dict(files.store.objects)  # type: ignore[attr-defined]
    one = apply_layers(files, base, [layer({b"b": "v"})])
    two = apply_layers(files, base, [layer({b"b": "v"})])
    assert one.metarange == two.metarange
    assert {files.key(Kind.RANGE, id_) for id_ in one.written} == {
        key
        for key in files.store.objects  # type: ignore[attr-defined]
        if key not in before and "/ranges/" in key
    }
