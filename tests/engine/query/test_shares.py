"""Shares of a question: whatever way it is cut, every sample that answers is read once, and within bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.core.errors import BadObject, LimitExceeded
from engine.formats.profile_block.merge_model import Scratch
from engine.query import dataset_reader, sample_batches, shares, unrolled_stacks
from engine.query.errors import InvalidQuestion
from engine.query.execution import QueryEngine
from engine.query.flame.stack_table import stack_table
from engine.query.model import Damage, QueryBlock, QueryDataset, Question
from engine.query.rows import RowReader
from engine.query.sample_batches import DEFAULT_COLUMNS, SampleColumns, ShareReader
from engine.query.shares import cut_shares, gather_shares
from engine.query.unrolled_stacks import UnrolledStacks
from engine.storage import ObjectNotFound, ObjectStore
from tests.engine.formats.profile_block.damage import patched as replaced
from tests.engine.formats.profile_block.factories import (
    TIME_MS,
    Dataset,
    ProfileRow,
    row,
    series_labels,
    symbol_partition,
    write_block,
)
from tests.engine.query import samples
from tests.engine.query.test_answers import blocks_in, merged, questions, sources, written

ALWAYS = Question(start_ms=0, end_ms=1 << 42)
NO_STACKS = SampleColumns(columns=("time", "service", "labels", "type", "value"))


def refuse(damage: Damage) -> None:
    raise damage.error


def read_all(
    engine: QueryEngine, blocks: Sequence[QueryBlock], question: Question, wish: SampleColumns, share_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Read share after share, as readers that know nothing of each other."""
    for gathered in gather_shares(cut_shares(blocks, question, share_bytes), share_bytes):
        reader = ShareReader(engine, question, wish, refuse)
        for share in gathered:
            yield from reader.batches(share)


def check(engine: QueryEngine, blocks: list[QueryBlock], entries: list[ProfileRow], question: Question) -> None:
    expected = samples.expected(entries, question)
    for share_bytes in (2_000, 1 << 30):
        found = samples.read(read_all(engine, blocks, question, SampleColumns(), share_bytes))
        assert found == expected
    plain: Counter[object] = Counter()
    for batch in read_all(engine, blocks, question, NO_STACKS, 2_000):
        assert batch.schema == NO_STACKS.schema
        batch = batch.append_column("stack", pa.array([[]] * batch.num_rows, pa.list_(pa.string())))
        plain += samples.read([batch])
    assert samples.without_stacks(plain) == samples.without_stacks(expected)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
@given(segments=sources(), question=questions(), bounds=st.sampled_from([(1 << 14, 1 << 24), (3, 200)]))
def test_shares_have_the_samples_of_the_rows_before_and_after_a_merge(
    segments: list[list[ProfileRow]],
    question: Question,
    bounds: tuple[int, int],
    store: ObjectStore,
    scratch: Scratch,
) -> None:
    entries = [entry for own in segments for entry in own]
    objects = written(store, segments)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dataset_reader, "WHOLE_BYTES", 0)
        patched.setattr(shares, "OPEN_BYTES", 1)  # or nothing so small would be cut by series
        patched.setattr(sample_batches, "BATCH_ROWS", bounds[0])
        patched.setattr(sample_batches, "BATCH_BYTES", bounds[1])
        before, after = QueryEngine(store, threads=2), QueryEngine(store, threads=2)
        try:
            check(before, blocks_in(store, objects), entries, question)
            check(after, merged(store, objects, scratch), entries, question)
        finally:
            before.close()
            after.close()


def dataset(start: int, end: int, size: int = 1000, name: str = "api") -> QueryDataset:
    return QueryDataset(
        position=0,
        tenant="acme",
        name=name,
        format=0,
        min_time_ms=start,
        max_time_ms=end,
        table_of_contents=(0, 1, 2),
        size=size,
    )


def block(*datasets: QueryDataset, key: str = "key") -> QueryBlock:
    return QueryBlock(key=key, size=1 << 40, datasets=datasets)


SPANS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 20), st.integers(0, 5000), st.sampled_from("ab")), max_size=12
)


@given(spans=SPANS, start=st.integers(0, 50), length=st.integers(0, 50), share_bytes=st.integers(1, 10_000))
def test_every_millisecond_of_every_dataset_is_in_one_share_with_all_of_its_service(
    spans: list[tuple[int, int, int, str]], start: int, length: int, share_bytes: int
) -> None:
    datasets = [dataset(first, first + span, size, name) for first, span, size, name in spans]
    blocks = [block(each, key=str(number)) for number, each in enumerate(datasets)]
    question = Question(start_ms=start, end_ms=start + length)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shares, "OPEN_BYTES", 1)
        cut = cut_shares(blocks, question, share_bytes)
    for time in range(start, start + length + 1):
        for name in "ab":
            there = {
                each.key
                for each in blocks
                if each.datasets[0].name == name
                and each.datasets[0].min_time_ms <= time <= each.datasets[0].max_time_ms
            }
            having = [
                share
                for share in cut
                if share.start_ms <= time <= share.end_ms and share.blocks[0].datasets[0].name == name
            ]
            assert not there or {share.part for share in having} == set(range(having[0].parts))
            assert len(having) <= (having[0].parts if having else 0)
            for share in having:
                assert there <= {each.key for each in share.blocks}
    gathered = gather_shares(cut, share_bytes)
    assert [share for own in gathered for share in own] == cut
    assert all(gathered)


def test_segments_side_by_side_are_cut_by_time_and_long_blocks_by_series() -> None:
    segments = [block(dataset(1 + 10 * n, 9 + 10 * n, 1 << 20), key=f"segment-{n}") for n in range(100)]
    long = [block(dataset(1, 1000, 40 << 20), key=f"long-{n}") for n in range(2)]
    by_time = cut_shares(segments, ALWAYS)
    assert {share.parts for share in by_time} == {1}
    assert len(by_time) == 25
    assert max(len(share.blocks) for share in by_time) <= 5
    by_series = cut_shares(long, ALWAYS)
    assert (by_series[0].start_ms, by_series[0].end_ms, by_series[0].parts) == (0, 1 << 42, len(by_series))
    assert 15 <= len(by_series) <= 25
    assert len(cut_shares([*segments, *long], ALWAYS)) < 100, "few datasets are read twice"
    assert len(gather_shares(cut_shares(segments, ALWAYS, 1), 1 << 40)) == 1


@pytest.fixture
def engine(store: ObjectStore) -> Iterator[QueryEngine]:
    found = QueryEngine(store, threads=2)
    yield found
    found.close()


def one_block(store: ObjectStore, *entries: ProfileRow) -> list[QueryBlock]:
    return blocks_in(store, [write_block(store, [Dataset("acme", "api", entries)])])


def test_frames_have_file_and_line(store: ObjectStore, engine: QueryEngine) -> None:
    blocks = one_block(store, row(("leaf", "main")))
    wish = SampleColumns(columns=("frames", "stack", "value"))
    (batch,) = read_all(engine, blocks, ALWAYS, wish, 1 << 20)
    assert batch.schema == wish.schema
    assert batch.to_pylist() == [
        {
            "frames": [
                {"function": "leaf", "file": "program.go", "line": 14},
                {"function": "main", "file": "program.go", "line": 14},
            ],
            "stack": ["leaf", "main"],
            "value": 1,
        }
    ]


def test_only_the_wanted_labels_are_there(store: ObjectStore, engine: QueryEngine) -> None:
    blocks = one_block(store, row())
    wish = SampleColumns(columns=("labels",), labels=("service_name", "__type__", "nope"))
    (batch,) = read_all(engine, blocks, ALWAYS, wish, 1 << 20)
    assert batch.to_pylist() == [{"labels": [("__type__", "cpu"), ("service_name", "api")]}]


@pytest.mark.parametrize("columns", [(), ("time", "nope"), ("time", "time")])
def test_columns_that_make_no_sense_are_refused(engine: QueryEngine, columns: tuple[str, ...]) -> None:
    with pytest.raises(InvalidQuestion, match="column"):
        ShareReader(engine, ALWAYS, SampleColumns(columns=columns), refuse)


def test_without_stacks_no_symbols_are_read(
    store: ObjectStore, engine: QueryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_reader, "WHOLE_BYTES", 0)
    blocks = one_block(store, *(row((f"function-{n}", "main"), id=n, time_ns=TIME_MS * 10**6 + n) for n in range(50)))
    (dataset,) = [each for each in blocks[0].datasets if each.format == 0]
    read: list[tuple[int, int]] = []
    real = store.get_range

    def get_range(key: str, start: int, length: int) -> bytes:
        read.append((start, start + length))
        return real(key, start, length)

    monkeypatch.setattr(store, "get_range", get_range)
    assert sum(batch.num_rows for batch in read_all(engine, blocks, ALWAYS, NO_STACKS, 1 << 20)) == 50
    assert read
    assert max(end for _, end in read) <= dataset.table_of_contents[2]
    read.clear()
    list(read_all(engine, blocks, ALWAYS, SampleColumns(columns=("stack",)), 1 << 20))
    assert max(end for _, end in read) > dataset.table_of_contents[2]


def test_what_is_read_after_opening_is_counted(
    store: ObjectStore, engine: QueryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_reader, "WHOLE_BYTES", 0)
    monkeypatch.setattr(dataset_reader, "FOOTER_GUESS_BYTES", 0)  # or all of so small a table comes with its footer
    blocks = one_block(store, *(row(id=n, time_ns=TIME_MS * 10**6 + n) for n in range(5)))
    lengths: list[int] = []
    real = store.get_range
    monkeypatch.setattr(store, "get_range", lambda *call: lengths.append(call[2]) or real(*call))
    run = engine.run()
    for opened, series in run.in_order(blocks, ALWAYS):
        before = len(lengths)
        assert sum(len(rows.times) for rows in RowReader(run, opened, ALWAYS, series).rows()) == 5
        assert len(lengths) > before
    cost = run.report().cost
    assert (cost.requests, cost.bytes_read, cost.objects_opened) == (len(lengths), sum(lengths), 1)


def test_damage_and_missing_objects_are_reported(store: ObjectStore, engine: QueryEngine) -> None:
    blocks = one_block(store, row())
    told: list[Damage] = []

    def read(wish: SampleColumns) -> int:
        (share,) = cut_shares(blocks, ALWAYS)
        return sum(batch.num_rows for batch in ShareReader(engine, ALWAYS, wish, told.append).batches(share))

    key = blocks[0].key
    whole = store.get(key)
    place = blocks[0].datasets[0].table_of_contents[2] + 40
    store.put(key, replaced(whole, place, bytes([whole[place] ^ 0xFF])))
    assert read(SampleColumns()) == 0
    assert isinstance(told[-1].error, BadObject)
    assert (told[-1].key, told[-1].service) == (key, "api")
    assert read(NO_STACKS) == 1, "what is not read cannot be damaged"
    store.delete(key)
    engine.cache._entries.clear()
    assert read(NO_STACKS) == 0
    assert isinstance(told[-1].error, ObjectNotFound)
    assert len(told) == 2


@pytest.mark.parametrize("damaged", [0, 1])
def test_parts_by_series_have_the_rest_of_a_damaged_dataset_once(
    store: ObjectStore, engine: QueryEngine, monkeypatch: pytest.MonkeyPatch, damaged: int
) -> None:
    monkeypatch.setattr(shares, "OPEN_BYTES", 1)
    entries = [
        row(labels=series_labels(pod=f"pod-{n}"), id=n, time_ns=TIME_MS * 10**6 + n % 2, value=1 + n) for n in range(40)
    ]
    objects = written(store, [entries[:25], entries[25:]])
    blocks = blocks_in(store, objects)
    cut = cut_shares(blocks, ALWAYS, 1000)
    assert len(cut) == cut[0].parts > 5
    key = objects[damaged].key
    whole, place = store.get(key), blocks[damaged].datasets[0].table_of_contents[1]
    store.put(key, replaced(whole, place, bytes(40)))  # the series index, which says where parts begin
    told: list[Damage] = []
    reader = ShareReader(engine, ALWAYS, SampleColumns(), told.append)
    found = samples.read(batch for share in cut for batch in reader.batches(share))
    assert found == samples.expected(entries[25:] if damaged == 0 else entries[:25], ALWAYS)
    assert {each.key for each in told} == {key}


def test_rows_outside_of_the_time_range_of_their_dataset_are_not_lost_silently(
    store: ObjectStore, engine: QueryEngine
) -> None:
    def at(offset_ms: int) -> ProfileRow:
        return row(id=offset_ms, time_ns=(TIME_MS + offset_ms) * 10**6)

    blocks = blocks_in(store, written(store, [[at(0), at(5)], [at(10), at(11)]]))
    (odd,) = blocks[0].datasets[:1]
    lying = replace(blocks[0], datasets=(replace(odd, max_time_ms=TIME_MS + 2),))
    (whole,) = cut_shares([lying], ALWAYS)
    told: list[Damage] = []
    assert sum(batch.num_rows for batch in ShareReader(engine, ALWAYS, NO_STACKS, told.append).batches(whole)) == 1
    assert ["times in the metadata" in str(each) for each in told] == [True]
    cut = cut_shares([lying, replace(lying, key="other", datasets=(dataset(TIME_MS + 3, TIME_MS + 4),))], ALWAYS, 1)
    assert cut[0].end_ms == TIME_MS + 2
    with pytest.raises(BadObject, match=f"in a dataset of {TIME_MS} to {TIME_MS + 2} ms"):
        list(ShareReader(engine, ALWAYS, NO_STACKS, refuse).batches(replace(cut[0], part=0, parts=1)))


@given(
    stacks=st.lists(st.lists(st.sampled_from(["main", "a", "bb", "ccc"]), min_size=1, max_size=9), min_size=1),
    draw=st.randoms(),
)
def test_stacks_are_unrolled_as_they_were(stacks: list[list[str]], draw) -> None:
    partition = symbol_partition(stacks)
    table = stack_table(partition)
    unrolled = UnrolledStacks(table)
    nodes = np.array([draw.randrange(len(table.parents)) for _ in range(20)], np.int32)
    naive = []
    for node in nodes.tolist():
        names = []
        while table.parents[node] >= 0:
            names.append(table.names[table.frames[table.frame_starts[table.locations[node]]]].decode())
            node = table.parents[node]
        naive.append(names)
    assert unrolled.lists(nodes).to_pylist() == naive
    sizes = [sum(len(name) + unrolled_stacks.FRAME_BYTES for name in names) for names in naive]
    assert unrolled.bytes_of(nodes).tolist() == sizes


@pytest.mark.slow
def test_a_stack_without_end_is_refused_before_it_is_unrolled() -> None:
    depth = unrolled_stacks.STACK_FRAMES_MAX + 1
    table = stack_table(symbol_partition([["main"]]))
    deep = replace(
        table,
        parents=np.arange(-1, depth, dtype=np.int32),
        locations=np.full(depth + 1, table.locations[1], np.int32),
    )
    unrolled = UnrolledStacks(deep)
    assert unrolled.bytes_of(np.array([depth - 1], np.int32)).tolist() == [(depth - 1) * 12]
    assert len(unrolled.lists(np.array([depth - 1], np.int32))[0]) == depth - 1
    with pytest.raises(LimitExceeded, match="65536 frames"):
        unrolled.bytes_of(np.array([depth], np.int32))


def test_the_usual_columns_are_columns() -> None:
    assert SampleColumns().columns == DEFAULT_COLUMNS
    SampleColumns(columns=tuple(sample_batches.FIELDS)).check()
