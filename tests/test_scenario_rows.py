"""Every scenario row of the references has a test with its marker, or is listed as replaced.

``tests/scenarios/rows.txt`` holds the rows: number and marks (U and C: what the system that inspired the lane does, R:
what ours does instead). Single letters are rows of scenario tables: S to W of the schedule of profiles, B of catalogs,
X and E of tables, L of placement; the other kinds name the list that they number. Rows of features that are not offered
are left out. A row is named by the marker of a test (``@pytest.mark.row("S18")``), by the heading of a scenario, or, if
it is an invariant, in ``tests/test_invariants.py``. A row that can run under neither policy is in the table of
``docs/decisions/README.md`` with the test that stands in its place.
"""

from __future__ import annotations

import re

from tests.row_markers import TESTS, MarkedTest, marked_tests
from tests.scenarios.test_scenario_files import ROWS as PLAYED
from tests.test_invariants import HELD_BY, TIMELINE_HELD_BY

ROOT = TESTS.parent
ROWS = dict(line.split() for line in (TESTS / "scenarios/rows.txt").read_text().splitlines())
_SCHEDULE = ("tests/engine/schedule/", "tests/webadmin/schedule/")
_LEVELS = "tests/engine/lanes/profiles/plan/"
_PLANNING = (f"{_LEVELS}test_levels.py", f"{_LEVELS}test_reference_queue.py")
_INDEX = ("tests/webadmin/lanes/profiles/",)
_TIMELINE = ("tests/engine/lanes/tables/plan/", "tests/webadmin/lanes/tables/")
_CATALOG = ("tests/engine/lanes/catalog/", "tests/webadmin/lanes/catalog/")
_PLACEMENT = ("tests/engine/placement/", "tests/webadmin/placement/")
_TSDB = ("tests/engine/lanes/tsdb/plan/test_reference",)
HOMES = {
    "S": _SCHEDULE,
    "Q": (*_PLANNING, *_SCHEDULE, *_INDEX),
    "P": (*_PLANNING, *_SCHEDULE, *_INDEX),
    "R": (*_SCHEDULE, *_INDEX),
    "I": _INDEX,
    "C": ("tests/engine/lanes/profiles/plan/test_retention.py", "tests/tasks/lanes/profiles/", *_INDEX),
    "D": _INDEX,
    "W": ("tests/tasks/test_worker_rows.py", "tests/engine/ingest/segments/test_worker_rows.py", *_INDEX),
    "B": _CATALOG,
    "X": _TIMELINE,
    "E": _TIMELINE,
    "L": _PLACEMENT,
    "placement-property-": _PLACEMENT,
    "placement-weakness-": _PLACEMENT,
    "tsdb-A": _TSDB,
    "tsdb-B": _TSDB,
    "tsdb-D": _TSDB,
    "tsdb-F": _TSDB,
    "profile-api-": (
        "tests/engine/formats/profile_block/test_selectors.py",
        "tests/engine/ingest/",
        "tests/engine/query/test_timeline.py",
        "tests/webadmin/ingest/",
        "tests/webadmin/query/viewers/",
    ),
    "catalog-interleaving-": _CATALOG,
    "invariant-": (_LEVELS, *_SCHEDULE, *_INDEX),
    "tables-invariant-": _TIMELINE,
}
"""Where the rows of each kind are tested. A marker elsewhere (in simulated worlds, say, which stand for nothing that is
shipped) does not count."""
INVARIANTS = {*(f"invariant-{n}" for n in HELD_BY), *(f"tables-invariant-{n}" for n in TIMELINE_HELD_BY)}


def _marked() -> set[str]:
    """Return the rows that tests in their homes are marked with."""
    return {row for test in marked_tests() for row in test.rows if _is_at_home(row, test)}


def _is_at_home(row: str, test: MarkedTest) -> bool:
    return str(test.path.relative_to(ROOT)).startswith(HOMES[row.rstrip("0123456789.")])


def _replaced() -> dict[str, str]:
    """Return the tests that stand in place of rows that can run under neither policy."""
    table = (ROOT / "docs/decisions/README.md").read_text()
    return dict(re.findall(r"^\| ([A-Z]\d+) \|.*\| `([^`]+)` \|$", table, re.MULTILINE))


def test_every_row_is_a_test_or_is_replaced_by_one() -> None:
    covered = {*_marked(), *(row for _, row in PLAYED), *_replaced(), *INVARIANTS}
    assert set(ROWS) - covered == set()


def test_what_replaces_a_row_exists() -> None:
    lost = []
    for row, test in _replaced().items():
        path, _, name = test.partition("::")
        if row not in ROWS or not re.search(rf"\bdef {name}\(", (ROOT / path).read_text()):
            lost.append((row, test))
    assert not lost


def test_rows_that_ours_does_otherwise_are_not_only_scenarios_of_the_reference() -> None:
    ours = {row for path, row in PLAYED if path.stem != "reference"} | {*_marked(), *_replaced()}
    assert {row for row, marks in ROWS.items() if "R" in marks} - ours == set()


def test_only_the_world_of_simulations_repeats_rows_elsewhere() -> None:
    """A test that is marked with a row and is about something else would hide that the row has none."""
    elsewhere = {test.path for test in marked_tests() if not all(_is_at_home(row, test) for row in test.rows)}
    assert {str(path.relative_to(ROOT)) for path in elsewhere} <= {"tests/engine/simulation/test_memory_schedule.py"}
