"""No module imports one that imports it, over however many others; imports in functions and for types count too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

PACKAGES = ("engine", "webadmin", "spark", "tasks")


def circles(imports: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Yield one circle after another, each broken where it closes."""
    left = {module: set(imported) for module, imported in imports.items()}
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle = error.args[1]
            yield circle[::-1]
            left[circle[1]].discard(circle[0])
        else:
            return


def test_nothing_imports_itself_over_others() -> None:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    imports = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    assert len(imports) > 900
    assert list(circles(imports)) == []


@pytest.mark.parametrize(
    ("imports", "count"),
    [({"a": {"b"}, "b": set()}, 0), ({"a": {"b"}, "b": {"a"}}, 1), ({"a": {"b"}, "b": {"c"}, "c": {"a", "b"}}, 2)],
)
def test_circles_are_found(imports: dict[str, set[str]], count: int) -> None:
    assert len(list(circles(imports))) == count
