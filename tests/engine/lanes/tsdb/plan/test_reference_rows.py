"""Every row of the reference for compaction by interval has a test with its marker, or ours answers it otherwise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.row_markers import marked_tests

HERE = Path(__file__).parent
DEFAULT_TESTS = "test_default.py"
ROWS_ANSWERED_OTHERWISE = {
    "C1": ("own marks mean nothing to us: a lease says who runs a group", "test_a_fresh_mark_of_another_compactor"),
    "C2": (
        "a block outside the largest range is in no group, so that no run ends by it",
        "test_what_fits_into_no_slot",
    ),
    "C3": ("as C2", "test_what_fits_into_no_slot"),
    "C4": ("marked blocks are out before groups are made", "test_a_bad_block_leaves_its_group_whole"),
    "C5": ("as C4; one block alone is final", "test_what_is_deleted_or_not_whole_is_never_planned"),
    "C6": ("a foreign fresh mark stops the tenant, not the group", "test_a_fresh_mark_of_another_compactor"),
    "C7": ("as C1: who lost a lease cannot commit", "test_a_fresh_mark_of_another_compactor"),
    "E": (
        "no partition marks: each part is a job with a lease and a fencing token; a part that no block has anything "
        "for is no job; the commit checks that every source is live and owned",
        "test_a_part_that_no_block_has_anything_for_does_not_exist",
    ),
    "G": (
        "no group file and no status: the parts of a group are committed as one, or the group is planned again with "
        "the blocks there are; while jobs have it, its slot is left alone",
        "test_a_taken_group_is_left_alone",
    ),
}
ROWS = {
    *(f"A{n}" for n in range(1, 14)),
    *(f"B{n}" for n in range(1, 12)),
    *(f"C{n}" for n in range(1, 8)),
    *(f"D{n}" for n in range(1, 30)),
    "E",
    *(f"F{n}" for n in range(1, 19)),
    "G",
}


def test_every_row_of_the_reference_is_a_test_or_is_answered() -> None:
    marked = [row for test in marked_tests(HERE) for row in test.rows if row.startswith("tsdb-")]
    named = {row.removeprefix("tsdb-") for row in marked}
    assert named | set(ROWS_ANSWERED_OTHERWISE) == ROWS
    assert not named & set(ROWS_ANSWERED_OTHERWISE)


@pytest.mark.parametrize("row", ROWS_ANSWERED_OTHERWISE)
def test_what_answers_a_row_exists(row: str) -> None:
    why, test = ROWS_ANSWERED_OTHERWISE[row]
    assert why
    assert re.search(rf"^def {test}", (HERE / DEFAULT_TESTS).read_text(), re.MULTILINE)
