"""Jobs of the catalog lane: as JSON, in one process, and unit by unit."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from engine.core.errors import ChecksumMismatch, MergeCancelled
from engine.formats.ranges.layout import SplitRules
from engine.formats.ranges.model import Interval
from engine.lanes.catalog import compact_job
from engine.lanes.catalog.compact_job import CompactJob
from engine.lanes.catalog.files import CatalogFiles
from engine.lanes.catalog.jobs import CatalogCompactResult, CatalogCompactSpec
from engine.lanes.catalog.messages import read_catalog_result, read_catalog_spec
from engine.protocol.errors import InvalidMessage
from tests.engine.lanes.catalog.compact_jobs import compact_spec
from tests.engine.lanes.catalog.factories import SMALL, Changes, applied, new_files, state, values_of
from tests.engine.lanes.catalog.strategies import LAYERS, STATES

VALUES = {b"%03d" % number: "x" for number in range(200)}
ID = "0123456789abcdef" * 4


def states_in(files: CatalogFiles) -> list[str]:
    """The names of all metaranges in the store."""
    return [info.key for info in files.store.list(f"{files.prefix}metaranges/")]


@given(STATES, LAYERS)
@settings(deadline=None, max_examples=40)
def test_units_that_travel_as_json_give_what_one_process_gives(
    values: dict[bytes, str], layers: list[tuple[Changes, list[Interval]]]
) -> None:
    files = new_files()
    spec = read_catalog_spec(json.loads(json.dumps(compact_spec(files, state(files, values), layers, SMALL).to_json())))
    alone = compact_job.run(replace(spec, unit_bytes=60), files.store)
    job = CompactJob.open(replace(spec, unit_bytes=60), files.store)
    plan = job.plan()
    results = []
    for unit in reversed(plan.units):
        sent = compact_job.unit_from_json(json.loads(json.dumps(compact_job.unit_to_json(unit))))
        done = json.loads(json.dumps(compact_job.unit_result_to_json(job.run_unit(sent))))
        results.append(compact_job.unit_result_from_json(done))
    assert job.finish(plan, results) == alone
    assert read_catalog_result(json.loads(json.dumps(alone.to_json()))) == alone
    expected = applied(values, layers)
    assert values_of(files, files.read_metarange(alone.metarange)) == expected
    assert alone.equals_head == (expected == values)


def test_a_state_equal_to_the_head_is_flagged() -> None:
    files = new_files()
    head, snapshot = state(files, VALUES), state(files, VALUES | {b"new": "y"})
    back = compact_spec(files, snapshot, [({b"new": None}, ())], SplitRules(), head=head)
    assert compact_job.run(back, files.store).equals_head
    assert not compact_job.run(replace(back, head=snapshot.id), files.store).equals_head


def test_the_result_lists_written_ranges() -> None:
    files = new_files()
    base = state(files, VALUES)
    result = compact_job.run(compact_spec(files, base, [({b"000": "y"}, ())], SMALL), files.store)
    ids = {info.id for info in files.read_metarange(result.metarange).ranges}
    assert set(result.written) == ids - {info.id for info in base.ranges} != set()


@pytest.mark.row("B45")
def test_a_cancelled_job_ends_between_two_units_without_a_state() -> None:
    files = new_files()
    spec = compact_spec(files, state(files, VALUES), [(dict.fromkeys(VALUES, "y"), ())], SMALL, unit_bytes=50)
    seen: list[tuple[int, int]] = []
    before = states_in(files)
    with pytest.raises(MergeCancelled):
        compact_job.run(spec, files.store, cancelled=lambda: len(seen) == 2, progress=lambda *done: seen.append(done))
    assert len(seen) == 2
    assert states_in(files) == before
    compact_job.run(spec, files.store, progress=lambda *done: seen.append(done))
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.row("B45")
def test_a_job_cancelled_from_the_start_leaves_no_state() -> None:
    """Whether the base, the changes or both were still to be read."""
    files = new_files()
    bases: list[tuple[dict[bytes, str], Changes]] = [
        (VALUES, {b"zz": "y"}),
        ({}, {b"a": "y"}),
        (VALUES, {b"100": None}),
    ]
    for base, changes in bases:
        spec = compact_spec(files, state(files, base), [(changes, ())], SMALL)
        before = states_in(files)
        with pytest.raises(MergeCancelled):
            compact_job.run(spec, files.store, cancelled=lambda: True)
        assert states_in(files) == before


def test_a_damaged_run_fails_its_job_and_names_itself() -> None:
    files = new_files()
    spec = compact_spec(files, state(files, VALUES), [({b"000": "y"}, ())], SMALL)
    run = files.store.get(spec.layers[0].key)
    files.store.put(spec.layers[0].key, run[:9] + b"!" + run[10:])
    with pytest.raises(ChecksumMismatch, match=spec.layers[0].key):
        compact_job.run(spec, files.store)


def spec_json() -> dict[str, Any]:
    files = new_files()
    layers: list[tuple[Changes, list[Interval]]] = [({b"a": "x"}, [(b"b", b"c"), (b"d", None)])]
    return compact_spec(files, state(files, VALUES), layers, SMALL).to_json()


def test_specifications_and_results_come_back_from_json() -> None:
    told = spec_json()
    assert read_catalog_spec(told) == CatalogCompactSpec.from_json(told)
    assert read_catalog_spec(told).layers[0].intervals == ((b"b", b"c"), (b"d", None))
    result = CatalogCompactResult(metarange=ID, equals_head=False, written=(ID,), added=3)
    assert read_catalog_result(json.loads(json.dumps(result.to_json()))) == result


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", "tsdb"),
        ("job", ""),
        ("prefix", "no-slash"),
        ("prefix", "../"),
        ("base", "abc"),
        ("head", ID.upper()),
        ("layers", None),
        ("layers", [{}]),
        ("every", 0),
        ("borders_every", -1),
        ("unit_bytes", "1"),
        ("task_memory_bytes", True),
    ],
)
def test_a_specification_that_cannot_be_is_refused_by_field(name: str, value: object) -> None:
    with pytest.raises(InvalidMessage, match=name):
        read_catalog_spec(spec_json() | {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key", "../run"),
        ("rows", -1),
        ("tail_bytes", 1 << 40),
        ("intervals", [["YQ=="]]),
        ("intervals", [["?", None]]),
        ("intervals", [[None, None]]),
        ("intervals", [5]),
    ],
)
def test_a_layer_that_cannot_be_is_refused_by_field(name: str, value: object) -> None:
    told = spec_json()
    told["layers"][0][name] = value
    with pytest.raises(InvalidMessage, match=rf"layers\[0\].{name}"):
        read_catalog_spec(told)


@pytest.mark.parametrize(
    ("name", "value"),
    [("kind", "x"), ("metarange", "x"), ("equals_head", 1), ("equals_head", None), ("added", -1), ("written", ["x"])],
)
def test_a_result_that_cannot_be_is_refused_by_field(name: str, value: object) -> None:
    told = CatalogCompactResult(metarange=ID, equals_head=True).to_json()
    with pytest.raises(InvalidMessage, match=name):
        read_catalog_result(told | {name: value})
