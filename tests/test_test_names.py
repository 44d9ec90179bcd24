"""Tests are named for what they check; the scenario rows they cover are markers, and each marker names a known row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.row_markers import marked_tests, read_tests
from tests.test_scenario_rows import ROWS

ROW_TOKEN = re.compile(
    r"test_(?:rows?_[a-z]?\d|(?:inv|invariants?|interleavings?|propert(?:y|ies)|weakness(?:es)?)_?\d|[a-z]\d+(?:_|$))"
)
"""The beginning of a name that is a row of a reference instead of a word: ``test_s18_…``, ``test_row_29_…``."""


def test_no_test_is_named_by_a_row() -> None:
    named = [(str(test.path), test.name) for test in marked_tests() if ROW_TOKEN.match(test.name)]
    assert not named, 'name the test for what it checks, and add @pytest.mark.row("S18")'


def test_every_marked_row_is_known() -> None:
    unknown = [(str(test.path), test.name, row) for test in marked_tests() for row in test.rows if row not in ROWS]
    assert not unknown, "rows are listed in tests/scenarios/rows.txt"


@pytest.mark.parametrize(
    "name", ["s18_x", "c11_and_c12_x", "inv27_x", "inv_16_x", "row_29_x", "rows_14_to_18_x", "row_a1", "property_7_x"]
)
def test_row_tokens_are_recognised(name: str) -> None:
    assert ROW_TOKEN.match(f"test_{name}")


@pytest.mark.parametrize("name", ["rows_are_sorted", "crc32_has_its_value", "a_store_like_s3_is_read", "utf8_is_kept"])
def test_words_are_no_row_tokens(name: str) -> None:
    assert not ROW_TOKEN.match(f"test_{name}")


def test_rows_of_functions_and_of_parameters_are_read() -> None:
    source = (
        'class TestQueue:\n    @pytest.mark.row("S1", "S2")\n    async def test_a(self): ...\n'
        '@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.row("B1")), 2])\ndef test_b(n): ...\n'
        "@pytest.mark.spark\ndef test_c(): ...\n"
    )
    found = {test.name: test.rows for test in read_tests(Path("x.py"), source)}
    assert found == {"test_a": ("S1", "S2"), "test_b": ("B1",), "test_c": ()}
