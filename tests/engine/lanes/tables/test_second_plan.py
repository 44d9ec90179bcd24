"""Once everything is merged nothing is left to do: the data sets of the benchmarks, small."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.lanes.tables.merge import merge_job
from engine.lanes.tables.plan.forecast import forecast_plan
from engine.lanes.tables.plan.granularity import HOUR_MS
from engine.storage import open_store
from tests.bench import shedding, timeline_plan
from tests.bench.table_data import tasks_before_and_after, write_days


def test_the_second_plan_of_merged_files_is_empty(tmp_path: Path) -> None:
    (root := tmp_path / "table").mkdir()
    spec = write_days(root, 3, 12, 20)
    result = merge_job.run(spec, open_store(spec.url), scratch=tmp_path / "scratch")
    before, after = tasks_before_and_after(spec, result)
    assert (before > 0, after) == (True, 0)


def test_the_second_plan_of_a_large_table_is_empty() -> None:
    segments = timeline_plan.snapshot(200, 2_500)
    found = forecast_plan("table", segments, timeline_plan.POLICY, now_ms=timeline_plan.START_MS + 200 * HOUR_MS)
    assert found.chunks > 100
    assert found.is_fix_point


@pytest.mark.slow
def test_overload_is_worked_off_in_the_end() -> None:
    figures = shedding.run(minutes=120).figures
    assert figures["second_plan_chunks"] == 0
    assert figures["analyses_of_deferred_unchanged"] == 0
