"""The probe lets equal executors pass and names what is unequal."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import spark.probe
from engine.core.kernels import implementation_of
from spark.errors import ExecutorsDiffer
from spark.probe import known_answers, probe

pytestmark = pytest.mark.spark


def test_equal_executors_pass(spark: SparkSession) -> None:
    answers = probe(spark)
    assert answers == known_answers()
    assert answers["crc32c"] == "e3069283"
    assert answers["kernel formats.profile_block.series._series_index"] == implementation_of(
        "engine.formats.profile_block.series._series_index"
    )


def test_an_executor_of_another_version_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    # This process pretends to be newer; the executors are processes of their own.
    monkeypatch.setattr("spark.probe.VERSION", "99.0")
    with pytest.raises(ExecutorsDiffer, match=r"lithify is '.*' on an executor and '99.0' here"):
        probe(spark)


def test_a_driver_that_computes_wrongly_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.core.checksums.crc32c", lambda data: 0)
    with pytest.raises(ExecutorsDiffer, match="crc32c is '00000000' here"):
        probe(spark)


def test_a_kernel_that_cannot_be_loaded_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.probe, "KERNELS", ("no_such_door",))
    assert known_answers()["kernel no_such_door"].startswith("failed: ModuleNotFoundError")
