"""``lithify.profiles`` on a real Spark, asking a real index over HTTP: the rows, their pruning, and what goes wrong."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from engine.core.errors import BadObject, LithifyError
from engine.formats.profile_block.selectors import parse_selector
from engine.query.model import Damage, Question
from engine.storage import ObjectNotFound
from engine.storage.model import StorageError
from spark.errors import BadSourceOption, ExecutorsDiffer, SourceGone
from spark.profiles_options import SourceOptions
from spark.profiles_source import ProfilesReader, ProfilesSource, Shares, _OnDamage
from tests.engine.formats.profile_block.damage import patched
from tests.engine.formats.profile_block.factories import CPU, HEAP
from tests.engine.query import samples
from tests.environments import set_only
from tests.spark.stored_rows import StoredRows

pytestmark = pytest.mark.spark
USUAL = {
    "tenant": "shop",
    "start": "2026-11-01",
    "end": "2026-11-02T12:00:00+01:00",
    "url": "http://localhost",
    "credential": "lw_secret",
    "store": "file:///x",
}


def load(spark: SparkSession, stored: StoredRows, **options: object) -> DataFrame:
    given = stored.options | {name: str(value) for name, value in options.items()}
    return spark.read.format("lithify.profiles").options(**given).load()


def look(frame: DataFrame) -> int:
    """Let a frame ask the index, as its job does before its tasks begin; return the number of tasks."""
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())


def shown(frame: DataFrame) -> samples.Shown:
    return samples.read(frame.toArrow().to_batches())


def asked(stored: StoredRows, selector: str = "", start: int | None = None, end: int | None = None) -> samples.Shown:
    """Return what the rows say: from ``start``, up to ``end`` without it."""
    question = Question(
        start_ms=stored.start_ms - 60_000 if start is None else start,
        end_ms=(stored.start_ms + 3_600_000 if end is None else end) - 1,
        matchers=parse_selector(selector),
    )
    return samples.expected(stored.rows, question)


def test_rows_are_those_of_the_plain_evaluation_before_during_and_after_a_merge(
    source: SparkSession, stored: StoredRows
) -> None:
    draw = random.Random(1)
    stored.write_random(draw, 25)
    middle = stored.start_ms + draw.randrange(12_000)
    questions: list[dict[str, Any]] = [
        {},
        {"selector": draw.choice(['{region="eu"}', '{service_name="api",region!~"eu.*"}', '{region=""}'])},
        {"start": middle - 3000, "end": middle},
    ]

    def check() -> None:
        for number, question in enumerate(questions):
            share_bytes = 20_000 if number % 2 else 4 << 20
            assert shown(load(source, stored, share_bytes=share_bytes, **question)) == asked(stored, **question)

    check()
    looked = load(source, stored, share_bytes=20_000)
    look(looked)
    assert stored.compact()
    assert shown(looked) == asked(stored), "replaced blocks are read while their objects are there"
    assert stored.delete_replaced()
    check()


def test_a_deleted_object_of_a_replaced_block_is_an_error_with_advice(source: SparkSession, stored: StoredRows) -> None:
    stored.write_random(random.Random(3), 20)
    looked = load(source, stored, on_damage="skip")
    look(looked)
    assert stored.compact()
    assert stored.delete_replaced()
    with pytest.raises(
        PySparkException, match=r"(?s)SourceGone: object segments/.*missing.*repeat the query.*cleanup_delay"
    ):
        looked.collect()
    assert shown(load(source, stored)) == asked(stored)


def test_conditions_of_sql_narrow_what_is_read(source: SparkSession, stored: StoredRows) -> None:
    stored.write_random(random.Random(4), 12)
    load(source, stored, columns="time,service,type,value").createOrReplaceTempView("profiles")
    everything = asked(stored)
    last = max(row[0] for row in everything)

    def check(condition: str, expected: int) -> int:
        """Compare, and return how many tasks there were."""
        found = source.sql(f"SELECT value FROM profiles WHERE {condition}")
        tasks = look(found)
        assert len(found.collect()) == expected
        return tasks

    tasks = check("true", everything.total())
    assert check("service = 'api'", sum(n for row, n in everything.items() if row[1] == "api")) <= tasks
    assert check(f"type IN ('{CPU}', '{HEAP}')", everything.total()) <= tasks
    assert check(f"type = '{CPU}' AND value > 7", sum(n for r, n in everything.items() if r[3] == CPU and r[5] > 7))
    check(f"time = timestamp_micros({last})", everything_at(everything, last))
    check(f"time > timestamp_micros({last}) OR service = 'none'", 0)
    for key in [info.key for info in stored.store.list("")]:
        stored.store.delete(key)
    for nothing in ("service = 'none'", "type = 'none'", "time < timestamp '2001-01-01'", "type = 'a' AND type = 'b'"):
        assert check(nothing, 0) <= 1, "nothing is read"
    with pytest.raises(PySparkException, match="SourceGone"):
        check("value > 0", 0)


def everything_at(everything: samples.Shown, time: int) -> int:
    return sum(count for row, count in everything.items() if row[0] == time)


def test_a_damaged_block_fails_the_question_by_name_or_is_left_out(source: SparkSession, stored: StoredRows) -> None:
    draw = random.Random(5)
    bad = stored.write([stored.random_row(draw) for _ in range(5)])
    damaged, stored.rows = stored.rows, []
    stored.write_random(draw, 3)
    data = stored.store.get(bad.key)
    stored.store.put(bad.key, patched(data, 0, b"\xff" * (len(data) // 2)))
    with pytest.raises(PySparkException, match=rf"(?s)SourceDamaged: .*{bad.key}.*on_damage"):
        load(source, stored).collect()
    found = shown(load(source, stored, on_damage="skip"))
    assert asked(stored) <= found
    stored.rows += damaged
    assert found < asked(stored)


def test_executors_get_no_credential(source: SparkSession, stored: StoredRows) -> None:
    stored.write_random(random.Random(6), 1)
    made = ProfilesSource(stored.options)
    reader = made.reader(made.schema())
    assert len(reader.partitions()) == 1, "planning still has it"
    travels = cloudpickle.dumps((made, reader, reader.partitions()))
    assert stored.secret.encode() not in travels
    assert stored.secret not in repr(made.__dict__)
    frame = load(source, stored)
    assert stored.secret not in frame._jdf.queryExecution().toString()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tenant": ""}, "option tenant is missing"),
        ({"start": "tomorrow"}, "option start='tomorrow' is not a time, such as"),
        ({"start": "2026-02-30"}, "not a time"),
        ({"end": "2001-01-01"}, "is not after start"),
        ({"selector": "{a=}"}, "option selector=.* expected a value in quotes"),
        ({"selector": '{a=~"("}'}, "has an invalid RE2 pattern"),
        ({"columns": "time,size"}, "there is no column 'size'; there are time, service"),
        ({"columns": ""}, "name at least one column"),
        ({"columns": "value", "labels": "region"}, "option columns does not include labels"),
        ({"on_damage": "ignore"}, "neither fail nor skip"),
        ({"share_bytes": "-1"}, "not a number from 1"),
        ({"credential": ""}, "option credential is missing, and SERVICE_CREDENTIAL is not set"),
        ({"store": "ftp://x"}, "option store: .* is not an object store"),
        ({"selektor": "{}"}, "there is no option 'selektor'; the options are tenant"),
    ],
)
def test_options_that_make_no_sense_are_refused_at_once(
    options: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_only(monkeypatch, {})
    read = SourceOptions.of(USUAL)
    assert (read.question.start_ms, read.question.end_ms) == (1_793_491_200_000, 1_793_617_199_999)
    assert "lw_secret" not in repr(read)
    with pytest.raises(BadSourceOption, match=message):
        SourceOptions.of(USUAL | options)


def test_a_refusal_reaches_the_caller(source: SparkSession, stored: StoredRows) -> None:
    stored.write_random(random.Random(7), 1)
    with pytest.raises(AnalysisException, match="BadSourceOption: option columns: there is no column 'size'"):
        load(source, stored, columns="size")
    with pytest.raises(AnalysisException, match=r"IndexQueryRefused.*403.*tenant_not_allowed"):
        load(source, stored, tenant="other").collect()
    with pytest.raises(AnalysisException, match=r"IndexQueryRefused.*401"):
        load(source, stored, credential="lw_no_no").collect()
    odd = source.read.format("lithify.profiles").schema(StructType.fromDDL("time timestamp"))
    with pytest.raises(AnalysisException, match="BadSourceOption: the schema is defined by the option columns"):
        odd.options(**stored.options).load().collect()


def test_what_is_skipped_is_logged_and_what_is_no_damage_is_not_skipped(caplog: pytest.LogCaptureFixture) -> None:
    def damage(error: LithifyError) -> Damage:
        return Damage(key="a/b", tenant="shop", service="api", error=error)

    skip = _OnDamage("now", skips=True)
    skip(damage(BadObject("symbols", 7, "odd", "a/b")))
    assert caplog.messages == [
        "datasets_skipped object=a/b tenant=shop service=api error=a/b: symbols at offset 7: odd"
    ]
    with pytest.raises(StorageError, match="away"):
        skip(damage(StorageError("get", "a/b", "away")))
    with pytest.raises(SourceGone, match="a/b was in the index snapshot of now"):
        skip(damage(ObjectNotFound("get", "a/b", "no such key")))


def test_executors_of_another_release_are_refused() -> None:
    reader = ProfilesReader(SourceOptions.of(USUAL))
    with pytest.raises(ExecutorsDiffer, match="and none on the driver"):
        list(reader.read(Shares((), "now", "none")))
    assert list(reader.read(Shares((), "now"))) == []
