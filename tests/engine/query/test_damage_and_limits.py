"""What is damaged is named and left out, what is too much is refused, and only what is needed is read."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from engine.core.errors import BadObject
from engine.formats.profile_block.container.container import BlockReader
from engine.formats.profile_block.model import DATASET_INDEX
from engine.formats.profile_block.selectors import parse_selector
from engine.formats.profile_block.series.series_index import encode_series_index
from engine.query import dataset_reader, execution, memory
from engine.query.admission import Caller
from engine.query.errors import InvalidQuestion, QueryAbandoned, QueryTimedOut, QueryTooLarge
from engine.query.execution import QueryEngine, QueryRun
from engine.query.flame.tree import FlameTree
from engine.query.memory import NODE_BYTES, SEEN_ROW_BYTES, expected_bytes, under_way_bytes
from engine.query.model import QueryBlock, QueryDataset, QueryLimits, Question, blocks_of, type_id
from engine.query.select_labels import label_values, select_series
from engine.query.select_points import Grid, select_points
from engine.query.select_stacks import select_stacks
from engine.storage import ObjectStore
from tests.engine.formats.profile_block.factories import (
    CPU,
    TIME_MS,
    Dataset,
    ProfileRow,
    make_sections,
    row,
    series_labels,
    write_block,
)
from tests.engine.query.naive import Folded, equal

IDS = [f"01JKT3DJRETWN25NKEFZNEP1V{number}" for number in range(10)]
ALWAYS = Question(start_ms=0, end_ms=1 << 45)


def block_of(store: ObjectStore, number: int, *datasets: Dataset) -> QueryBlock:
    source = write_block(store, datasets, id=IDS[number])
    [block] = blocks_of([(source.key, BlockReader.open(store, source.key).meta)])
    return block


def stacks(run: QueryRun, blocks: list[QueryBlock], question: Question = ALWAYS) -> dict[tuple[str, ...], int]:
    folded = Folded()
    select_stacks(run, blocks, question, folded)
    return dict(folded.stacks)


@pytest.fixture
def three(store: ObjectStore) -> list[QueryBlock]:
    """Three objects of a service with a row each; the second and the third have one row in common."""
    shared = row(("shared",), id=9, value=100)
    own = [[row((f"own-{n}",), id=n, value=n + 1)] for n in range(3)]
    return [block_of(store, n, Dataset("acme", "api", (*own[n], *([shared] if n else [])))) for n in range(3)]


def damage(store: ObjectStore, block: QueryBlock, section: int) -> None:
    """Change the last byte of a section of the block's first dataset."""
    starts = block.datasets[0].table_of_contents
    end = (*starts[1:], starts[0] + block.datasets[0].size)[section]
    data = bytearray(store.get(block.key))
    data[end - 1] ^= 0xFF
    store.put(block.key, bytes(data))


@pytest.mark.parametrize(("section", "name"), [(0, "profiles"), (1, "series_index"), (2, "symbols")])
@pytest.mark.parametrize("whole", [True, False])
def test_a_damaged_object_is_left_out_and_named_and_loses_no_row_that_others_have(
    section: int,
    name: str,
    whole: bool,
    engine: QueryEngine,
    store: ObjectStore,
    three: list[QueryBlock],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dataset_reader, "WHOLE_BYTES", (1 << 18) if whole else 0)
    damage(store, three[1], section)
    run = engine.run()
    assert stacks(run, three) == {("own-0",): 1, ("own-2",): 3, ("shared",): 100}
    [found] = run.report().damage
    assert (found.key, found.tenant, found.service) == (three[1].key, "acme", "api")
    assert isinstance(found.error, BadObject)
    assert (found.error.section, found.error.object_name) == (name, three[1].key)
    assert run.report().is_partial
    assert three[1].key in str(found)


def test_a_truncated_and_a_missing_object_are_named_too(
    engine: QueryEngine, store: ObjectStore, three: list[QueryBlock]
) -> None:
    store.put(three[0].key, store.get(three[0].key)[:100])
    store.delete(three[1].key)
    run = engine.run()
    assert stacks(run, three) == {("own-2",): 3, ("shared",): 100}
    assert [(found.key, found.is_missing) for found in run.report().damage] == [
        (three[0].key, False),
        (three[1].key, True),
    ]


def test_a_damaged_row_group_takes_only_its_own_rows(
    engine: QueryEngine, store: ObjectStore, three: list[QueryBlock], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = engine.run()
    monkeypatch.setattr("engine.query.rows._SampleReader", _FailingOnce())
    assert sum(stacks(run, three).values()) in (101 + 2 + 3 - 1, 100 + 1 + 3, 100 + 1 + 2)
    assert len(run.report().damage) == 1


class _FailingOnce:
    """Stands in front of what reads samples, and finds the first batch damaged."""

    def __init__(self) -> None:
        from engine.query import rows

        self._reader = rows._SampleReader
        self._has_failed = False

    def __call__(self, *arguments: object) -> object:
        if not self._has_failed:
            self._has_failed = True
            raise BadObject("profiles", 7, "made up")
        return self._reader(*arguments)  # type: ignore[arg-type]


def test_a_damaged_dataset_index_is_named_and_not_needed(
    engine: QueryEngine, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "INDEX_PAYS_FROM", 2)
    datasets = [Dataset("acme", name, (row((name,), labels=series_labels(service=name)),)) for name in ("api", "web")]
    block = block_of(store, 0, *datasets)
    [index] = [each for each in block.datasets if each.format == DATASET_INDEX]
    question = replace(ALWAYS, matchers=parse_selector('{service_name="web"}'))
    run = engine.run()
    assert stacks(run, [block], question) == {("web",): 1}
    assert run.report().cost.datasets_read == 2, "the dataset index and one dataset"
    data = bytearray(store.get(block.key))
    data[index.table_of_contents[0] + index.size - 1] ^= 0xFF
    store.put(block.key, bytes(data))
    other = QueryEngine(store)
    again = other.run()
    assert stacks(again, [block], question) == {("web",): 1}
    [found] = again.report().damage
    assert str(found).startswith("dataset index in ")
    other.close()


def test_values_that_no_tree_can_hold_leave_their_block_out(engine: QueryEngine, store: ObjectStore) -> None:
    huge = [
        block_of(store, n, Dataset("acme", "api", (row((f"own-{n}",), id=n, value=(1 << 63) - 1 if n else 5),)))
        for n in range(2)
    ]
    run = engine.run()
    found = stacks(run, huge)
    assert found == {("own-0",): 5, ("own-1",): (1 << 63) - 1}, "the test's own sums have no limit"
    tree, again = FlameTree(), engine.run()
    select_stacks(again, huge, ALWAYS, tree)
    [damage] = again.report().damage
    assert "2^63" in str(damage)
    assert tree.total in (5, (1 << 63) - 1)


def test_values_of_one_dataset_that_add_up_to_too_much_are_named_and_points_are_exact(
    engine: QueryEngine, store: ObjectStore
) -> None:
    rows = tuple(row(id=n, value=1 << 62, time_ns=(TIME_MS + n) * 1_000_000) for n in range(3))
    block = block_of(store, 0, Dataset("acme", "api", rows))
    run = engine.run()
    stacks(run, [block])
    assert "2^63" in str(run.report().damage[0]), "a sum that turns negative would be left out in silence"
    grid = Grid(start_ms=TIME_MS + 2, end_ms=TIME_MS + 2, step_ms=3)
    [found] = select_points(engine.run(), [block], ALWAYS, grid)
    assert [point.value for point in found.points] == [float(3 << 62)]


def test_rows_outside_of_the_times_that_the_metadata_names_are_left_out_and_named_once(
    engine: QueryEngine, store: ObjectStore
) -> None:
    def at(ms: int, *ids: int) -> tuple[ProfileRow, ...]:
        return tuple(row((f"id-{n}",), id=n, time_ns=(TIME_MS + ms) * 1_000_000) for n in ids)

    liar = block_of(store, 0, Dataset("acme", "api", (*at(0, 1), *at(50, 2, 3))))
    short = tuple(replace(each, min_time_ms=TIME_MS, max_time_ms=TIME_MS) for each in liar.datasets)
    liar = replace(liar, datasets=short)
    honest = block_of(store, 1, Dataset("acme", "api", at(50, 2)))
    run = engine.run()
    assert stacks(run, [liar, honest]) == {("id-1",): 1, ("id-2",): 1}, "what both have counts once"
    [found] = run.report().damage
    assert (found.key, found.error.code) == (liar.key, "bad_object")
    assert "times in the metadata" in str(found)


def test_of_labels_that_a_series_has_twice_the_first_counts_everywhere(engine: QueryEngine, store: ObjectStore) -> None:
    twice = (*series_labels(region="eu"), (b"region", b"us"))
    block = block_of(store, 0, Dataset("acme", "api", (row(labels=twice),)))
    for region, total in (("eu", 1), ("us", 0)):
        question = replace(ALWAYS, matchers=parse_selector(f'{{region="{region}"}}'))
        assert sum(stacks(engine.run(), [block], question).values()) == total
    grid = Grid(start_ms=TIME_MS, end_ms=TIME_MS, step_ms=1, group_by=("region",))
    [found] = select_points(engine.run(), [block], ALWAYS, grid)
    assert found.labels == (("region", "eu"),)


def test_a_series_number_that_would_take_all_memory_is_refused(engine: QueryEngine, store: ObjectStore) -> None:
    sections = make_sections([row()])
    index = encode_series_index([sections.series[0]._replace(position=(1 << 32) - 1)])
    starts = (0, len(sections.profiles), len(sections.profiles) + len(index))
    data = sections.profiles + index + sections.symbols
    store.put("odd", data)
    dataset = QueryDataset(
        position=0, tenant="acme", name="api", format=0, min_time_ms=0, max_time_ms=0, table_of_contents=starts,
        size=len(data),
    )  # fmt: skip
    run = engine.run()
    assert stacks(run, [QueryBlock(key="odd", size=len(data), datasets=(dataset,))]) == {}
    assert "a series has a number beyond" in str(run.report().damage[0])


def test_the_reported_cost_equals_the_requests_to_the_store(engine: QueryEngine, store: ObjectStore) -> None:
    big = tuple(row((f"function-{n}",), id=n, labels=series_labels(region=str(n % 5))) for n in range(200))
    blocks = [block_of(store, n, Dataset("acme", "api", big)) for n in range(2)]
    before = store.usage.requests().get("get_range", 0)
    run = engine.run()
    total = sum(stacks(run, blocks).values())
    cost = run.report().cost
    assert total == 200, "the second object has the same rows"
    assert (cost.objects_opened, cost.datasets_read, cost.rows_read) == (2, 2, 200)
    assert cost.requests == store.usage.requests()["get_range"] - before == 2
    assert cost.bytes_read == sum(block.datasets[0].size for block in blocks)
    assert cost.seconds > 0
    assert all(cost.phases[name] > 0 for name in ("open", "series", "rows", "symbols", "merge"))


@pytest.mark.slow
def test_only_the_requested_columns_of_a_large_dataset_are_read(
    engine: QueryEngine, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_reader, "WHOLE_BYTES", 0)
    monkeypatch.setattr(dataset_reader, "FOOTER_GUESS_BYTES", 4096)
    monkeypatch.setattr(dataset_reader, "GAP_BYTES", 0)
    monkeypatch.setattr("engine.query.rows.SMALL_BYTES", 0)
    big = tuple(
        row((f"function-{n}",), id=n, labels=series_labels(region="eu"), time_ns=(TIME_MS + n) * 1_000_000)
        for n in range(3000)
    )
    block = block_of(store, 0, Dataset("acme", "api", big))
    run = engine.run()
    found = select_points(run, [block], ALWAYS, Grid(start_ms=TIME_MS, end_ms=TIME_MS + 2999, step_ms=1000))
    assert sum(point.value for point in found[0].points) == 2001, "later rows are behind the last point"
    points_cost = run.report().cost
    starts = block.datasets[0].table_of_contents
    assert points_cost.bytes_read < 3000 * (16 + 8) + 4096 + (starts[2] - starts[1]) + 1000, "ids, times, the rest"
    again = engine.run()
    assert label_values(again, [block], ALWAYS, "region") == ["eu"]
    assert again.report().cost.requests == 0, "the series are in the cache"
    assert again.report().cost.objects_opened == 0


def test_a_series_that_surrounds_the_range_is_looked_into(engine: QueryEngine, store: ObjectStore) -> None:
    times = {"early-and-late": (0, 10), "also-between": (0, 5, 10)}
    rows = tuple(
        row(id=n, labels=series_labels(region=region), time_ns=(TIME_MS + ms) * 1_000_000)
        for region, own in times.items()
        for n, ms in enumerate(own)
    )
    block = block_of(store, 0, Dataset("acme", "api", rows))
    question = Question(start_ms=TIME_MS + 3, end_ms=TIME_MS + 6)
    assert label_values(engine.run(), [block], question, "region") == ["also-between"]


def test_a_profile_is_found_by_its_id(engine: QueryEngine, three: list[QueryBlock]) -> None:
    wanted = frozenset({(9).to_bytes(16, "big")})
    assert stacks(engine.run(), three, replace(ALWAYS, profile_ids=wanted)) == {("shared",): 100}


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (QueryLimits(objects=2), "objects"),
        (QueryLimits(bytes=100), "bytes"),
        (QueryLimits(rows=2), "rows"),
    ],
)
def test_too_much_is_refused_in_words(
    engine: QueryEngine, three: list[QueryBlock], limits: QueryLimits, name: str
) -> None:
    with pytest.raises(QueryTooLarge, match=f"{name}: ask for less"):
        stacks(engine.run(limits), three)


def test_too_many_series_or_points_are_refused(engine: QueryEngine, store: ObjectStore) -> None:
    rows = tuple(row(id=n, labels=series_labels(region=str(n))) for n in range(5))
    block = block_of(store, 0, Dataset("acme", "api", rows))
    run = engine.run(QueryLimits(series=4, points=10))
    with pytest.raises(QueryTooLarge, match="4 series"):
        select_series(run, [block], ALWAYS)
    grid = Grid(start_ms=TIME_MS, end_ms=TIME_MS, step_ms=1, group_by=("region",))
    with pytest.raises(QueryTooLarge, match="4 series"):
        select_points(engine.run(QueryLimits(series=4)), [block], ALWAYS, grid)
    with pytest.raises(QueryTooLarge, match="10 points"):
        select_points(run, [block], ALWAYS, Grid(start_ms=0, end_ms=10, step_ms=1))


def test_little_memory_lets_less_be_under_way_and_changes_no_answer(
    engine: QueryEngine, store: ObjectStore, three: list[QueryBlock], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [block.datasets[0].size for block in three]
    under_way, most = 0, 0
    read = QueryRun._read_dataset

    def reading(run: QueryRun, block: QueryBlock, *others: Any) -> Any:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        try:
            return read(run, block, *others)
        finally:
            with lock:
                under_way -= 1

    lock = threading.Lock()
    monkeypatch.setattr(QueryRun, "_read_dataset", reading)
    limits = QueryLimits(memory=4 * under_way_bytes(max(sizes)))
    assert sum(stacks(engine.run(limits), three).values()) == 106
    assert most == 1
    assert expected_bytes(three, limits) < expected_bytes(three, QueryLimits())
    assert expected_bytes(three, QueryLimits(memory=1)) > under_way_bytes(max(sizes)), "one is always needed"


def test_what_an_answer_keeps_is_bounded_by_memory(
    engine: QueryEngine, store: ObjectStore, three: list[QueryBlock], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(QueryTooLarge, match="1 rows"):
        stacks(engine.run(QueryLimits(memory=4 * SEEN_ROW_BYTES)), three)
    tree = FlameTree()
    deep = block_of(store, 3, Dataset("acme", "api", (row(("a", "b", "c", "d")),)))
    with pytest.raises(QueryTooLarge, match="3 nodes in a tree"):
        select_stacks(engine.run(QueryLimits(memory=3 * 2 * NODE_BYTES)), [deep], ALWAYS, tree)
    assert tree.node_count == 4
    grid = Grid(start_ms=TIME_MS, end_ms=TIME_MS, step_ms=1, group_by=("service_name",))
    monkeypatch.setattr(memory, "POINT_BYTES", 1 << 20)
    with pytest.raises(QueryTooLarge, match="0 points"):
        select_points(engine.run(QueryLimits(memory=1 << 20)), three[:1], ALWAYS, grid)
    with pytest.raises(QueryTooLarge, match="250 bytes of labels"):
        select_series(engine.run(QueryLimits(memory=1000)), three, ALWAYS)


def test_an_abandoned_query_ends(engine: QueryEngine, three: list[QueryBlock]) -> None:
    gone = threading.Event()
    caller = Caller(engine.memory, 300, gone.is_set)
    assert sum(stacks(engine.run(caller=caller), three).values()) == 106
    gone.set()
    with pytest.raises(QueryAbandoned):
        stacks(engine.run(caller=caller), three)


def test_a_deadline_ends_a_question(engine: QueryEngine, three: list[QueryBlock]) -> None:
    with pytest.raises(QueryTimedOut, match="no answer within 0 s"):
        stacks(engine.run(QueryLimits(seconds=0)), three)
    assert sum(stacks(engine.run(), three).values()) == 106, "and leaves nothing behind for the next"


@pytest.mark.parametrize(
    ("grid", "reason"),
    [
        (Grid(start_ms=0, end_ms=1, step_ms=0), "step must be >= 1ms"),
        (Grid(start_ms=2, end_ms=1, step_ms=1), "start time is after"),
        (Grid(start_ms=0, end_ms=1, step_ms=1, limit=-1), "negative"),
    ],
)
def test_a_grid_without_sense_is_refused(engine: QueryEngine, grid: Grid, reason: str) -> None:
    with pytest.raises(InvalidQuestion, match=reason):
        select_points(engine.run(), [], ALWAYS, grid)


def test_questions_without_sense_are_refused(engine: QueryEngine) -> None:
    with pytest.raises(InvalidQuestion, match="start time is after end time"):
        stacks(engine.run(), [], Question(start_ms=2, end_ms=1))
    with pytest.raises(InvalidQuestion, match="not for both"):
        stacks(engine.run(), [], replace(ALWAYS, span_ids=frozenset({1}), trace_ids=frozenset({b"t" * 16})))
    with pytest.raises(InvalidQuestion, match="name is required"):
        label_values(engine.run(), [], ALWAYS, "")


def test_a_profile_type_has_five_parts_and_an_ignored_sixth() -> None:
    assert type_id(CPU) == type_id(f"{CPU}:delta") == CPU
    assert ALWAYS.of_type(CPU).matchers == (equal("__profile_type__", CPU),)
    for text, parts in (("a:b:c:d", 4), ("a", 1), ("a:b:c:d:e:f:g", 7)):
        with pytest.raises(InvalidQuestion, match=rf"got\({parts}\): {text}"):
            type_id(text)


def test_timeline_points_are_those_of_the_reference(engine: QueryEngine, store: ObjectStore) -> None:
    rows = [
        row(value=value, id=n, time_ns=ms * 1_000_000)
        for n, (ms, value) in enumerate([(947, 100), (987, 300), (1847, 200)])
    ]
    block = block_of(store, 0, Dataset("acme", "api", tuple(rows)))
    [found] = select_points(engine.run(), [block], ALWAYS, Grid(start_ms=1000, end_ms=3000, step_ms=1000))
    assert [(point.time_ms, point.value) for point in found.points] == [(1000, 400), (2000, 200)]


def test_the_largest_series_come_first(engine: QueryEngine, store: ObjectStore) -> None:
    values = {"a": 3, "b": 4, "c": 2, "d": 2}
    rows = [row(value=value, labels=series_labels(name=name)) for name, value in values.items()]
    block = block_of(store, 0, Dataset("acme", "api", tuple(rows)))
    grid = Grid(start_ms=TIME_MS, end_ms=TIME_MS, step_ms=1, group_by=("name",))
    assert [each.labels[0][1] for each in select_points(engine.run(), [block], ALWAYS, grid)] == ["b", "a", "c", "d"]
    top = select_points(engine.run(), [block], ALWAYS, replace(grid, limit=2))
    assert [each.labels[0][1] for each in top] == ["b", "a"]


def test_fifty_questions_at_once_share_the_threads_and_answer_alike(
    engine: QueryEngine, store: ObjectStore, three: list[QueryBlock]
) -> None:
    expected = stacks(engine.run(), three)
    threads: set[str] = set()
    read = store.get_range

    def reading(key: str, offset: int, length: int) -> bytes:
        threads.add(threading.current_thread().name)
        return read(key, offset, length)

    store.get_range = reading  # type: ignore[method-assign]
    with ThreadPoolExecutor(50) as people:
        found = list(people.map(lambda _: stacks(engine.run(), three), range(50)))
    assert found == [expected] * 50
    assert 0 < len(threads) <= engine.threads
