"""Compactions of branches on a real Spark: the ids of one process, and errors of one job only."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from engine.core.errors import BadObject, MergeCancelled
from engine.formats.ranges.layout import Kind, SplitRules
from engine.lanes.catalog import compact_job
from engine.lanes.catalog.files import CatalogFiles
from engine.lanes.catalog.jobs import CatalogCompactResult
from engine.storage import ObjectNotFound, open_store
from spark.lanes.catalog import compact as catalog_compact
from tests.engine.lanes.catalog.compact_jobs import compact_spec
from tests.engine.lanes.catalog.factories import state

pytestmark = pytest.mark.spark
RULES = SplitRules(bytes_min=4_000, bytes_max=40_000, every=128)
VALUES = {b"%05d" % number: "x" for number in range(10_000)}


@pytest.fixture
def files(tmp_path: Path) -> CatalogFiles:
    return CatalogFiles(open_store(str(tmp_path / "store")), "repository/")


def test_spark_gives_the_ids_of_one_process_and_a_job_its_own_error(spark: SparkSession, files: CatalogFiles) -> None:
    base = state(files, VALUES, RULES)
    changes = [({b"%05d" % number: "y" for number in range(0, 10_000, 9)}, [(b"03", b"04")]), ({b"5": "new"}, [])]
    good = compact_spec(files, base, changes, RULES, job="good", unit_bytes=10_000)
    small = compact_spec(files, base, [({b"00000": "z"}, [])], RULES, job="small")
    idle = compact_spec(files, base, [], RULES, job="idle")
    unwanted = compact_spec(files, base, [({b"00001": "z"}, [])], RULES, job="unwanted")
    lost = compact_spec(files, base, [({b"00001": "z"}, [])], RULES, job="lost")
    files.store.delete(lost.layers[0].key)
    other = state(files, {b"other": "x"}, RULES)
    files.store.put(files.key(Kind.RANGE, other.ranges[0].id), b"damaged")
    damaged = compact_spec(files, other, [({b"other": "y"}, [])], RULES, job="damaged")
    expected = {spec.job: compact_job.run(spec, files.store) for spec in (good, small, idle)}
    told: list[str] = []
    outcomes = catalog_compact.run(
        spark,
        [good, small, idle, unwanted, lost, damaged],
        files.store.url,
        tag=f"test-{uuid4().hex}",
        cancelled=lambda job: job == "unwanted",
        progress=lambda job, progress: told.append(f"{job} {progress.phase}"),
    )
    assert {job: outcome for job, outcome in outcomes.items() if isinstance(outcome, CatalogCompactResult)} == expected
    assert len(compact_job.CompactJob.open(good, files.store).plan().units) > 5
    assert isinstance(outcomes["unwanted"], MergeCancelled)
    assert isinstance(outcomes["lost"], ObjectNotFound)
    assert isinstance(outcomes["damaged"], BadObject)
    assert other.ranges[0].id in str(outcomes["damaged"])
    assert {"good merge", "good write"} <= set(told)
