"""Every row of the reference's two tables has a test that is named after it: ``b12`` is a scenario, an order of two
connections says the number of its interleaving."""

from __future__ import annotations

import re
from pathlib import Path

from tests.processes import ROOT
from tests.webadmin.lanes.catalog import test_interleavings, test_late_interleavings

SCENARIOS, INTERLEAVINGS = 88, 40
FOLDERS = ("engine/lanes/catalog", "webadmin/lanes/catalog")


def names() -> list[str]:
    files = [file for folder in FOLDERS for file in (Path(ROOT) / "tests" / folder).rglob("test_*.py")]
    return [name for file in files for name in re.findall(r"^def (\w+)\(", file.read_text(), re.MULTILINE)]


def test_all_scenarios_are_tested_by_name() -> None:
    found = {int(number) for name in names() for number in re.findall(r"_b(\d+)(?=_)", name)}
    assert found == set(range(1, SCENARIOS + 1))


def test_all_interleavings_are_forced_on_two_connections() -> None:
    orders = [*test_interleavings.ORDERS, *test_late_interleavings.ORDERS]
    heads = [re.match(r"order_(\d+)[a-z]?(?:_and_(\d+))?_", order.__name__) for order in orders]
    found = {int(number) for head in heads if head for number in head.groups() if number}
    assert found == set(range(1, INTERLEAVINGS + 1))
