"""The how-to page, run as it is written; its tables and the code; what delete requests hide; real blocks."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from engine.query.sample_batches import DEFAULT_COLUMNS, FIELDS
from spark.profiles_options import OPTIONS
from tests.engine.conftest import ForeignBlocks
from tests.engine.formats.profile_block.factories import CPU
from tests.engine.query import naive
from tests.engine.query.test_known_answers import TOP
from tests.spark.service_double import block_to_json, service_double
from tests.spark.stored_rows import StoredRows
from tests.webadmin.lanes.profiles.test_delete_requests import delete

pytestmark = pytest.mark.spark
DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to/ask-in-sql.md").read_text()


def blocks(language: str) -> list[str]:
    """Return the page's code blocks of a language, without the indent of the list they stand in."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", PAGE, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


def run_page(spark: SparkSession, stored: StoredRows, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what the page says up to the view; the driver's environment is given to Spark that runs already."""
    told = {"SERVICE_URL": stored.url, "SERVICE_CREDENTIAL": stored.secret, "OBJECT_STORE_URL": stored.store.url}
    for name, value in told.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    (program,) = blocks("python")
    exec(program, {})


def write_november(stored: StoredRows) -> None:
    """Write rows of three weeks; a few of them are not of November."""
    draw = random.Random(8)
    begin = datetime(2026, 10, 31, 12, tzinfo=UTC)
    for day in range(0, 24, 3):
        time_ns = int((begin + timedelta(days=day)).timestamp()) * 10**9
        stored.service.clock.now_ms = time_ns // 10**6 + 10_000
        stored.write([replace(stored.random_row(draw), time_ns=time_ns + n) for n in range(8)])


def test_the_queries_of_the_page_give_its_answers(
    source: SparkSession,
    stored: StoredRows,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_november(stored)
    run_page(source, stored, monkeypatch)
    weekly, own = (source.sql(text).collect() for text in blocks("sql"))

    totals: defaultdict[tuple[datetime, str | None], Counter[str]] = defaultdict(Counter)
    selves: Counter[str] = Counter()
    for row in stored.rows:
        labels, time = naive.text_labels(row), datetime.fromtimestamp(row.time_ns // 10**9, UTC)
        if labels["__profile_type__"] != CPU or time < datetime(2026, 11, 1, tzinfo=UTC):
            continue
        week = (time - timedelta(days=time.weekday())).replace(hour=0)
        for sample in row.samples:
            for function in set(sample.stack):
                totals[week, labels.get("region")][function] += sample.value
            selves[sample.stack[0]] += sample.value if time >= datetime(2026, 11, 16, tzinfo=UTC) else 0
    assert len({week for week, _ in totals}) == 3
    expected = {
        (week, region, place, function, round(value / 1e9, 2))
        for (week, region), functions in totals.items()
        for place, (function, value) in enumerate(sorted(functions.items(), key=lambda each: (-each[1], each[0])), 1)
        if place <= 10
    }
    assert {(utc(row.week), *row[1:]) for row in weekly} == expected
    assert {row.function for row in own} == {name for name, value in selves.items() if value}


def utc(local: datetime) -> datetime:
    return local.astimezone(UTC)


def test_a_view_can_be_made_in_sql_alone(source: SparkSession, stored: StoredRows) -> None:
    stored.write_random(random.Random(9), 2)
    options = ", ".join(f"{name} '{value}'" for name, value in stored.options.items())
    source.sql(f"CREATE OR REPLACE TEMPORARY VIEW own USING lithify.profiles OPTIONS ({options}, columns 'value')")
    (row,) = source.sql("SELECT sum(value) AS total FROM own").collect()
    distinct = {(each.labels, each.time_ns, each.id): each for each in stored.rows}
    assert row.total == sum(sample.value for each in distinct.values() for sample in each.samples)


def test_what_delete_requests_name_is_left_out(source: SparkSession, stored: StoredRows) -> None:
    stored.write_random(random.Random(10), 10)
    load = source.read.format("lithify.profiles").options(**stored.options).load
    before = [(row.labels.get("region"), row.service) for row in load().collect()]
    delete(tenant="shop", selector='{region="eu"}')
    delete(tenant="shop", service="web")
    after = [(row.labels.get("region"), row.service) for row in load().collect()]
    assert Counter(after) == Counter(each for each in before if each[0] != "eu" and each[1] != "web")
    assert after


def words(table: str) -> list[str]:
    """Return the first column of a table of the reference page."""
    page = (DOCS / "reference/spark-source.md").read_text()
    (part,) = [each for each in page.split("\n## ") if each.startswith(table)]
    return re.findall(r"^\| `([a-z_]+)` \|", part, re.MULTILINE)


def test_the_reference_lists_every_column_and_option() -> None:
    assert words("Columns") == list(FIELDS)
    assert words("Columns")[:-1] == list(DEFAULT_COLUMNS)
    assert words("Options") == list(OPTIONS)


@pytest.mark.foreign_data
def test_real_blocks_of_another_program_give_the_known_answers(
    source: SparkSession,
    foreign_blocks: ForeignBlocks,
) -> None:
    block = foreign_blocks["01JKT3DJRE"]
    answer: dict[str, Any] = {"blocks": [block_to_json(block.key, block.meta)]}
    with service_double(answer) as url:
        options = {"url": url, "credential": "lw_x", "store": foreign_blocks.store.url, "tenant": "anonymous"}
        frame = source.read.format("lithify.profiles").options(**options, start="1970-01-02", end="2100-01-01").load()
        frame.createOrReplaceTempView("profiles")
        own = source.sql(
            f"SELECT stack[0] AS name, sum(value) AS own FROM profiles WHERE type = '{CPU}' GROUP BY name "
            "ORDER BY own DESC LIMIT 10"
        )
        assert {row.name: row.own for row in own.collect()} == TOP
