"""Conditions pushed down by Spark only ever narrow: no row that meets them is left out of what is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from engine.formats.profile_block.selectors import match_all, parse_selector
from engine.query.model import PROFILE_TYPE, QueryBlock, QueryDataset, Question
from spark.profiles_filters import PushedFilters

START_MS, END_MS = 1_790_000_000_000, 1_790_000_000_020
QUESTION = Question(start_ms=START_MS, end_ms=END_MS, matchers=parse_selector('{service_name!="x"}'))
TEXTS = st.sampled_from(["api", "web", "a.b", "a|b", "a b", "", "(", "\\d"])
NOON = datetime.fromtimestamp(START_MS // 1000, UTC)
TIMES = st.integers(-2_000, 22_000).map(lambda us: NOON + timedelta(microseconds=us))
COMPARE: dict[type[Filter], Any] = {
    EqualTo: lambda left, right: left == right,
    GreaterThan: lambda left, right: left > right,
    GreaterThanOrEqual: lambda left, right: left >= right,
    LessThan: lambda left, right: left < right,
    LessThanOrEqual: lambda left, right: left <= right,
    In: lambda left, right: left in right,
}
TIME_CONDITIONS = st.builds(
    lambda kind, value: kind(("time",), value),
    st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]),
    TIMES,
)
TEXT_CONDITIONS = st.builds(
    lambda column, condition: type(condition)((column,), condition.value),
    st.sampled_from(["service", "type"]),
    st.one_of(
        TEXTS.map(lambda text: EqualTo(("",), text)),
        st.lists(st.one_of(TEXTS, st.none()), min_size=1, max_size=4).map(lambda texts: In(("",), tuple(texts))),
    ),
)
OTHERS = st.sampled_from([IsNotNull(("time",)), Not(EqualTo(("service",), "api")), GreaterThan(("value",), 7)])
ROWS = st.lists(st.fixed_dictionaries({"time": TIMES, "service": TEXTS, "type": TEXTS}), max_size=20)


def meets(row: dict[str, Any], condition: Filter) -> bool:
    """Say whether a row meets a condition; those that are not understood are met by all."""
    if isinstance(condition, IsNotNull | Not) or condition.attribute == ("value",):  # type: ignore[attr-defined]
        return True
    (column,) = condition.attribute  # type: ignore[attr-defined]
    return bool(COMPARE[type(condition)](row[column], condition.value))  # type: ignore[attr-defined]


def is_read(row: dict[str, Any], pushed: PushedFilters) -> bool:
    """Say whether a row would be read after all conditions were pushed."""
    question = pushed.question
    if question is None:
        return False
    dataset = QueryDataset(
        position=0,
        tenant="shop",
        name=row["service"],
        format=0,
        min_time_ms=0,
        max_time_ms=0,
        table_of_contents=(0, 1, 2),
        size=3,
    )
    is_chosen = bool(pushed.chosen([QueryBlock(key="key", size=3, datasets=(dataset,))]))
    labels = [((PROFILE_TYPE, row["type"]),)]
    types = [condition for condition in question.matchers if condition.name == PROFILE_TYPE]
    time_ns = round((row["time"] - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1)) * 1000
    return is_chosen and match_all(labels, types) == [True] and question.start_ns <= time_ns <= question.end_ns


@given(conditions=st.lists(st.one_of(TIME_CONDITIONS, TEXT_CONDITIONS, OTHERS), max_size=4), rows=ROWS)
def test_every_row_that_meets_the_conditions_is_read(conditions: list[Filter], rows: list[dict[str, Any]]) -> None:
    pushed, unpushed = PushedFilters(QUESTION), PushedFilters(QUESTION)
    for condition in conditions:
        pushed.add(condition)
    for row in rows:
        if is_read(row, unpushed) and all(meets(row, condition) for condition in conditions):
            assert is_read(row, pushed)
    if pushed.question:
        assert pushed.question.matchers[:1] == QUESTION.matchers


def test_conditions_do_narrow() -> None:
    pushed = PushedFilters(QUESTION)
    pushed.add(GreaterThanOrEqual(("time",), NOON + timedelta(milliseconds=5)))
    pushed.add(LessThan(("time",), NOON + timedelta(milliseconds=9)))
    pushed.add(EqualTo(("type",), "cpu"))
    pushed.add(In(("service",), ("api", "web")))
    assert pushed.question is not None
    assert (pushed.question.start_ms, pushed.question.end_ms) == (START_MS + 5, START_MS + 9)
    row = {"time": NOON + timedelta(milliseconds=6), "service": "api", "type": "cpu"}
    assert is_read(row, pushed)
    assert not is_read(row | {"service": "db"}, pushed)
    assert not is_read(row | {"type": "heap"}, pushed)
    assert not is_read(row | {"time": NOON}, pushed)
    pushed.add(LessThan(("time",), NOON))
    assert pushed.question is None
