"""Every row of the reference's two tables has a test: ``B12`` is the marker of a scenario, the name of an order of two
connections has the number of its interleaving."""

from __future__ import annotations

import re
from pathlib import Path

from tests.processes import ROOT
from tests.row_markers import marked_tests
from tests.webadmin.lanes.catalog import test_interleavings, test_late_interleavings

SCENARIOS, INTERLEAVINGS = 88, 40
FOLDERS = ("engine/lanes/catalog", "webadmin/lanes/catalog")


def test_all_scenarios_are_tested() -> None:
    tests = [test for folder in FOLDERS for test in marked_tests(Path(ROOT) / "tests" / folder)]
    found = {row for test in tests for row in test.rows if row.startswith("B")}
    assert found == {f"B{number}" for number in range(1, SCENARIOS + 1)}


def test_all_interleavings_are_forced_on_two_connections() -> None:
    orders = [*test_interleavings.ORDERS, *test_late_interleavings.ORDERS]
    heads = [re.match(r"order_(\d+)[a-z]?(?:_and_(\d+))?_", order.__name__) for order in orders]
    found = {int(number) for head in heads if head for number in head.groups() if number}
    assert found == set(range(1, INTERLEAVINGS + 1))
