"""``kill -9`` while files of a table are merged: readers see every row once at any moment."""

from __future__ import annotations

import itertools

import pytest

from engine.lanes.tables.plain.manifest import read_manifest
from engine.storage import open_store
from tests.faults.database_proxy import Statement
from tests.faults.http_proxy import Request
from tests.faults.stack import CONTROLS, NODES, OBJECTS_PREFIX, SETTLE_SECONDS, WEBS, FaultStack
from tests.faults.steps import Step
from tests.faults.traps import Moment
from tests.processes import wait_until
from tests.webadmin.lanes.tables.parquet_files import put_hours, read_ids

HOURS = 6
STEPS = (
    Step(name="output", on="store", match=lambda _: is_output, moment=Moment.AFTER, victims=NODES),
    Step(name="report", on="service", match=lambda _: is_report, moment=Moment.BEFORE, victims=NODES),
    Step(name="swap", on="database", match=lambda _: is_swap, moment=Moment.BEFORE, victims=WEBS),
    Step(name="swapped", on="database", match=lambda _: is_swap, moment=Moment.AFTER, victims=WEBS),
    Step(name="manifest", on="store", match=lambda _: is_manifest, moment=Moment.BEFORE, victims=CONTROLS),
)
_numbers = itertools.count()


def is_output(request: Request) -> bool:
    return request.is_about("PUT", "/lithify-") and "/lake-" in request.path


def is_manifest(request: Request) -> bool:
    """Match a manifest with a merged file, not that of the adoption."""
    return request.is_about("PUT", "/lake-", b"/lithify-")


def is_report(request: Request) -> bool:
    return request.is_about("POST", "/jobs/poll", b'"success"') and b".parquet" in request.body


def is_swap(statement: Statement) -> bool:
    return statement.commits("day-000/", "completed")


class Table:
    """A table of a day's files in a folder of the bucket; the stack reaches it through the proxy."""

    def __init__(self, stack: FaultStack) -> None:
        self._stack = stack
        self.name = f"lake-{next(_numbers)}"
        direct, self._proxied = (
            url.replace(f"/{OBJECTS_PREFIX}?", f"/{self.name}?")
            for url in (stack.around.store_url, stack.around.proxied_store_url)
        )
        self.lake = open_store(direct)
        self.rows = read_ids(self.lake, put_hours(self.lake, 0, hours=range(HOURS)))

    def adopt(self) -> None:
        """Let the stack compact it."""
        where = ("--time-column", "ts", "--tenant", "acme", "--name", self.name)
        self._stack.python("manage.py", "tables", "adopt", self._proxied, *where)

    def shown(self) -> list[str]:
        """Return what a reader who begins with the pointer opens, which has every row once."""
        manifest = read_manifest(self.lake)
        assert manifest is not None
        files = sorted(file.path for file in manifest.files)
        assert read_ids(self.lake, files) == self.rows
        return files

    def check(self) -> None:
        """Wait until the day is one file, its job is done, and nothing else is left of it."""
        jobs = "SELECT DISTINCT state FROM schedule_job WHERE lane = 'tables'"
        try:
            wait_until(lambda: len(self.shown()) == 1, f"{self.name} is merged", SETTLE_SECONDS)
            wait_until(lambda: self._stack.rows(jobs) == [("done",)], "no job is left", SETTLE_SECONDS)
        except AssertionError as error:
            found = self._stack.rows(
                "SELECT name, state, failures, parked_reason FROM schedule_job WHERE lane = 'tables'"
            )
            raise AssertionError(f"{error}\n{found}\n{self._stack.story()}") from None
        self.shown()


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_kill_during_a_merge_of_files_leaves_every_row_visible_once(fault_stack: FaultStack, step: Step) -> None:
    table = Table(fault_stack)
    trap, is_set = step.set_trap(fault_stack, 0)
    with is_set:
        table.adopt()
        fault_stack.kill_client(trap, *step.victims)
        table.shown()
    if step.victims == CONTROLS:  # the turn of a publisher that died ends after two minutes
        fault_stack.rows("UPDATE tables_datasource SET publisher_until_ms = 0 WHERE name = %s RETURNING id", table.name)
    table.check()
