"""Every row of the scenario tables of the reference sheets is a test that names it, or is listed as replaced.

``tests/scenarios/rows.txt`` holds the rows: number and marks (U and C: what the system that inspired the lane does, R:
what ours does instead); X and E are the examples and edge cases of the timeline sheet. A row is named by the beginning
of a test's name (``test_s18_…``, ``test_c11_and_c12_…``) or by the heading of a scenario. A row that can run under
neither policy is in the table of ``docs/decisions/README.md`` with the test that stands in its place.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.scenarios.test_scenario_files import ROWS as PLAYED

TESTS = Path(__file__).parent
ROOT = TESTS.parent
ROWS = dict(line.split() for line in (TESTS / "scenarios/rows.txt").read_text().splitlines())
_SCHEDULE = ("tests/engine/schedule/", "tests/webadmin/schedule/")
_LEVELS = "tests/engine/lanes/profiles/plan/"
_PLANNING = (f"{_LEVELS}test_levels.py", f"{_LEVELS}test_reference_queue.py")
_INDEX = ("tests/webadmin/lanes/profiles/",)
_TIMELINE = ("tests/engine/lanes/tables/plan/", "tests/webadmin/lanes/tables/")
HOMES = {
    "S": _SCHEDULE,
    "Q": (*_PLANNING, *_SCHEDULE, *_INDEX),
    "P": (*_PLANNING, *_SCHEDULE, *_INDEX),
    "R": (*_SCHEDULE, *_INDEX),
    "I": _INDEX,
    "C": ("tests/engine/lanes/profiles/plan/test_retention.py", "tests/tasks/control/", *_INDEX),
    "D": _INDEX,
    "W": ("tests/tasks/test_worker_rows.py", "tests/engine/ingest/segments/test_worker_rows.py", *_INDEX),
    "B": ("tests/engine/lanes/catalog/", "tests/engine/lanes/catalog/plan/", "tests/webadmin/lanes/catalog/"),
    "X": _TIMELINE,
    "E": _TIMELINE,
}
"""Where the rows of each kind are tried. Elsewhere a name like a row's is of something else (in simulated worlds,
say, which stand for nothing that is shipped) and counts for nothing."""
KINDS = "".join(HOMES)


def _named_in_tests() -> dict[str, list[str]]:
    """Return the tests, as ``path::name``, by the rows their names begin with."""
    named: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE):
            for row in _rows_of(name):
                if not _is_at_home(row, path):
                    continue
                named.setdefault(row, []).append(f"{path.relative_to(ROOT)}::{name}")
    return named


def _rows_of(test_name: str) -> list[str]:
    leading = re.match(rf"test_((?:[{KINDS.lower()}]\d+_(?:and_)?)+)", test_name)
    return [word.upper() for word in leading[1].split("_") if word not in ("", "and")] if leading else []


def _is_at_home(row: str, path: Path) -> bool:
    return str(path.relative_to(ROOT)).startswith(HOMES[row[0]])


def _replaced() -> dict[str, str]:
    """Return the tests that stand in place of rows that can run under neither policy."""
    table = (ROOT / "docs/decisions/README.md").read_text()
    return dict(re.findall(rf"^\| ([{KINDS}]\d+) \|.*\| `([^`]+)` \|$", table, re.MULTILINE))


def test_every_row_is_a_test_or_is_replaced_by_one() -> None:
    covered = {*_named_in_tests(), *(row for _, row in PLAYED), *_replaced()}
    assert set(ROWS) - covered == set()


def test_what_replaces_a_row_exists() -> None:
    lost = []
    for row, test in _replaced().items():
        path, _, name = test.partition("::")
        if row not in ROWS or not re.search(rf"\bdef {name}\(", (ROOT / path).read_text()):
            lost.append((row, test))
    assert not lost


def test_rows_that_ours_does_otherwise_are_not_only_scenarios_of_the_reference() -> None:
    ours = {row for path, row in PLAYED if path.stem != "reference"} | {*_named_in_tests(), *_replaced()}
    assert {row for row, marks in ROWS.items() if "R" in marks} - ours == set()


def test_only_the_world_of_simulations_repeats_names_of_rows_elsewhere() -> None:
    """A test that is named like a row and is about something else would hide that the row has none."""
    strange = [
        (str(path.relative_to(ROOT)), name)
        for path in sorted(TESTS.rglob("test_*.py"))
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
        if any(not _is_at_home(row, path) for row in _rows_of(name))
    ]
    assert {path for path, _ in strange} <= {"tests/engine/simulation/test_memory_schedule.py"}


def test_a_name_like_a_row_that_the_sheet_does_not_have_is_a_mistake() -> None:
    assert set(_named_in_tests()) - set(ROWS) == set()


def test_a_row_counts_only_at_the_beginning_of_a_name() -> None:
    assert _rows_of("test_c11_and_c12_keep_what_has_no_end") == ["C11", "C12"]
    assert _rows_of("test_a_store_like_s3_is_asked_once") == []
    assert _rows_of("test_inv4_nothing_vanishes") == []
