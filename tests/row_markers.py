"""The scenario rows that tests cover, read from their ``pytest.mark.row`` markers without importing the tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent


class MarkedTest(NamedTuple):
    """A test function and the rows of its markers, those of single parameters included."""

    path: Path
    name: str
    rows: tuple[str, ...]


@cache
def marked_tests(folder: Path = TESTS) -> tuple[MarkedTest, ...]:
    """Return every test function below ``folder``, most of them without rows."""
    return tuple(found for path in sorted(folder.rglob("test_*.py")) for found in read_tests(path, path.read_text()))


def read_tests(path: Path, source: str) -> Iterator[MarkedTest]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            rows = [row for decorator in node.decorator_list for row in _rows_in(decorator)]
            yield MarkedTest(path, node.name, tuple(rows))


def _rows_in(decorator: ast.expr) -> Iterator[str]:
    for node in ast.walk(decorator):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.row":
            yield from (ast.literal_eval(argument) for argument in node.args)
