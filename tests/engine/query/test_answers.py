"""For any rows in any blocks, any selector and any range: the answer is that of the rows, before and after a merge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.formats.profile_block.container.container import BlockReader
from engine.formats.profile_block.merge_model import Scratch
from engine.formats.profile_block.selectors import Matcher, MatchOperator
from engine.lanes.profiles.jobs import SourceObject
from engine.lanes.profiles.merge.merge import run as run_merge
from engine.query import dataset_reader, execution
from engine.query.execution import QueryEngine
from engine.query.model import QueryBlock, Question, blocks_of
from engine.query.select_labels import label_names, label_values, profile_types, select_series
from engine.query.select_points import Aggregation, Grid, select_points
from engine.query.select_stacks import select_stacks
from engine.storage import ObjectStore
from tests.engine.formats.profile_block.factories import (
    CPU,
    HEAP,
    TIME_MS,
    Dataset,
    ProfileRow,
    Sample,
    merge_spec,
    series_labels,
    write_block,
)
from tests.engine.formats.profile_block.results import result_meta
from tests.engine.query import naive

IDS = [f"01JKT3DJRETWN25NKEFZNEP1V{number}" for number in range(10)]
STACKS = (
    ("main",),
    ("main", "run"),
    ("read", "main"),
    ("idle",),
    ("a", "b", "a", "main"),
    (),
    ("",),
    ("größe", "世界"),
)
VALUES = (1, 2, 40, 0, 1 << 56)
SERVICES = ("api", "web")
SPANS = (None, 0, 7, 1 << 63)
TRACES = (None, bytes(16), b"t" * 16)


@st.composite
def rows(draw: st.DrawFn) -> ProfileRow:
    extra = draw(st.fixed_dictionaries({}, optional={"region": st.sampled_from(["eu", "us", "eu-1", "", 'ü"\n'])}))
    if draw(st.integers(0, 9)) == 0:
        extra["__sampled__"] = "true"
    labels = series_labels(draw(st.sampled_from([CPU, HEAP])), draw(st.sampled_from(SERVICES)), **extra)
    sample = st.builds(
        Sample, st.sampled_from(STACKS), st.sampled_from(VALUES), st.sampled_from(SPANS), st.sampled_from(TRACES)
    )
    offset_ns = draw(st.integers(0, 9)) * 1_000_000 + draw(st.sampled_from([0, 1, 999_999]))
    samples = tuple(draw(st.lists(sample, min_size=1, max_size=3)))
    return ProfileRow(
        labels=labels,
        samples=samples,
        time_ns=TIME_MS * 1_000_000 + offset_ns,
        id=xxhash.xxh128_digest(
            repr(samples).encode()
        ),  # equal rows may well be in several blocks, as with every writer
    )


def sources() -> st.SearchStrategy[list[list[ProfileRow]]]:
    return st.lists(st.lists(rows(), min_size=1, max_size=8), min_size=1, max_size=3)


MATCHERS = st.one_of(
    st.builds(
        Matcher,
        st.sampled_from(["region", "service_name", "__profile_type__", "no_such"]),
        st.sampled_from([MatchOperator.EQUAL, MatchOperator.NOT_EQUAL]),
        st.sampled_from(["", "eu", "us", "api", 'ü"\n', CPU]),
    ),
    st.builds(
        Matcher,
        st.sampled_from(["region", "service_name", "no_such"]),
        st.sampled_from([MatchOperator.MATCHES, MatchOperator.MATCHES_NOT]),
        st.sampled_from(["", ".*", ".+", "eu", "eu.*", "(api|us)", "u", "ü.*", "[^e]+"]),
    ),
)


@st.composite
def questions(draw: st.DrawFn) -> Question:
    start, end = sorted(draw(st.lists(st.integers(-1, 11), min_size=2, max_size=2)))
    matchers = tuple(draw(st.lists(MATCHERS, max_size=3)))
    spans = draw(st.frozensets(st.sampled_from(SPANS[1:]), max_size=2))
    traces = frozenset() if spans else draw(st.frozensets(st.sampled_from(TRACES[1:]), max_size=1))
    return Question(start_ms=TIME_MS + start, end_ms=TIME_MS + end, matchers=matchers, span_ids=spans, trace_ids=traces)


def datasets(entries: Sequence[ProfileRow]) -> list[Dataset]:
    services = sorted({naive.text_labels(entry)["service_name"] for entry in entries})
    return [
        Dataset("acme", name, tuple(e for e in entries if naive.text_labels(e)["service_name"] == name))
        for name in services
    ]


def written(store: ObjectStore, segments: Sequence[Sequence[ProfileRow]]) -> list[SourceObject]:
    return [write_block(store, datasets(entries), id=IDS[n]) for n, entries in enumerate(segments)]


def blocks_in(store: ObjectStore, objects: Sequence[SourceObject]) -> list[QueryBlock]:
    return blocks_of((each.key, BlockReader.open(store, each.key).meta) for each in objects)


def merged(store: ObjectStore, objects: Sequence[SourceObject], scratch: Scratch) -> list[QueryBlock]:
    result = run_merge(merge_spec(objects), store, scratch=scratch)
    return blocks_of((block.key, result_meta(store, replace(result, blocks=(block,)))) for block in result.blocks)


def check(engine: QueryEngine, blocks: list[QueryBlock], entries: list[ProfileRow], question: Question) -> None:
    folded = naive.Folded()
    run = engine.run()
    select_stacks(run, blocks, question, folded)
    assert not run.report().damage
    assert folded.stacks == naive.stacks(entries, question)
    expected = naive.series(entries, question)
    assert select_series(engine.run(), blocks, question) == expected
    assert label_names(engine.run(), blocks, question) == sorted({name for each in expected for name, _ in each})
    types = sorted({dict(each)["__profile_type__"] for each in expected})
    assert profile_types(engine.run(), blocks, question) == types
    assert label_values(engine.run(), blocks, question, "region") == sorted(
        {dict(each)["region"] for each in expected if "region" in dict(each)}
    )
    for group_by in ((), ("region", "service_name")):
        for aggregation in Aggregation:
            grid = Grid(
                start_ms=question.start_ms,
                end_ms=question.end_ms,
                step_ms=3,
                group_by=group_by,
                aggregation=aggregation,
            )
            found = select_points(engine.run(), blocks, question, grid)
            as_read = {each.labels: {point.time_ms: point.value for point in each.points} for each in found}
            assert as_read == naive.points(entries, question, grid)
            sums = [sum(point.value for point in each.points) for each in found]
            assert sums == sorted(sums, reverse=True)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=80)
@given(segments=sources(), question=questions(), whole=st.booleans())
def test_an_answer_is_that_of_the_rows_before_and_after_a_merge(
    segments: list[list[ProfileRow]],
    question: Question,
    whole: bool,
    store: ObjectStore,
    scratch: Scratch,
) -> None:
    entries = [entry for own in segments for entry in own]
    objects = written(store, segments)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dataset_reader, "WHOLE_BYTES", (1 << 18) if whole else 0)  # both ways of reading
        patched.setattr(execution, "INDEX_PAYS_FROM", 1 if whole else 4)
        before = QueryEngine(store, threads=2)  # an engine of its own: examples write other objects of the same names
        after = QueryEngine(store, threads=2)
        try:
            check(before, blocks_in(store, objects), entries, question)
            check(after, merged(store, objects, scratch), entries, question)
            check(after, naive.without_types(blocks_in(store, objects)), entries, question)
        finally:
            before.close()
            after.close()
