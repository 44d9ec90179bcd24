"""A folder of Parquet files becomes a table through real processes: control worker, broker, web, node, Spark.

Readers that begin with the pointer see every row once at any moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.lanes.tables.plain.manifest import read_manifest
from engine.storage import ObjectStore, open_store
from tasks.lanes.tables.manifest import CLEAN_TABLES_TASK, PLAN_TABLES_TASK, PUBLISH_TABLES_TASK, SETTLE_TABLES_TASK
from tests.e2e.stack import Stack
from tests.processes import Processes, wait_until
from tests.webadmin.lanes.tables.parquet_files import day, put_hours, read_ids

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.xdist_group("stack")]

DAYS = 4
JOBS = "SELECT state, failures FROM schedule_job WHERE lane = 'tables' ORDER BY id"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Processes() as processes:
        stack = Stack(tmp_path_factory.mktemp("stack"), processes)
        yield stack
        stack.close()


@pytest.fixture
def lake(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path}/events")


def shown_files(lake: ObjectStore) -> list[str]:
    """Return what a reader who begins with the pointer opens."""
    manifest = read_manifest(lake)
    assert manifest is not None
    return sorted(file.path for file in manifest.files)


def test_a_folder_of_files_is_adopted_merged_on_spark_and_cleaned_while_readers_see_every_row(
    stack: Stack, lake: ObjectStore
) -> None:
    first = [path for number in range(DAYS) for path in put_hours(lake, number)]
    lake.put("day-001/broken.parquet", b"no Parquet, and long enough to be looked at as if it were")
    said = stack.manage("tables", "adopt", lake.url, "--time-column", "ts", "--tenant", "acme", "--name", "events")
    assert "broken.parquet" in said
    rows = read_ids(lake, first)
    assert shown_files(lake) == sorted(first)
    assert len(rows) == DAYS * 24 * 3
    stack.change("UPDATE tables_policy SET deletion_delay_seconds = 0")

    stack.node()
    control = stack.start_control()
    seen: list[int] = []

    def is_merged() -> bool:
        for task in (PLAN_TABLES_TASK, SETTLE_TABLES_TASK, PUBLISH_TABLES_TASK):
            stack.send_control_task(task)
        files = shown_files(lake)
        seen.append(len(files))
        assert read_ids(lake, files) == rows, "readers see every row once, whatever is going on"
        return len(files) == DAYS

    wait_until(is_merged, "every day is one file", 120.0)
    assert seen[0] == len(first)
    assert {path.rpartition("/")[0] for path in shown_files(lake)} == {f"day-{number:03}" for number in range(DAYS)}
    assert set(stack.rows(JOBS)) == {("done", 0)}

    def is_clean() -> bool:
        stack.send_control_task(CLEAN_TABLES_TASK)
        return {info.key for info in lake.list() if info.key.endswith(".parquet")} == {
            *shown_files(lake),
            "day-001/broken.parquet",
        }

    wait_until(is_clean, "only files of the table are left, and the one that nobody could read")
    assert read_ids(lake, shown_files(lake)) == rows
    assert "0 tasks" in stack.manage("tables", "plan", "--table", "events", "--tenant", "acme", "--dry-run")
    told = stack.manage("tables", "explain", "--table", "events", "--tenant", "acme", str(day(1)))
    assert "stable" in told
    assert control.terminate() == 0
