"""Every test of flame graphs runs on the twin and, when it is built, on the compiled tree."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from engine.query.flame import _flame_tree_py, tree

try:
    COMPILED = importlib.import_module("engine.query.flame._flame_tree")
except ModuleNotFoundError:
    COMPILED = None


@pytest.fixture(scope="module", autouse=True, params=["python", *(["compiled"] if COMPILED else [])])
def merge_implementation(request: pytest.FixtureRequest) -> Iterator[str]:
    """The implementation in use while a test runs."""
    module = COMPILED if request.param == "compiled" else _flame_tree_py
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "StackMerge", module.StackMerge)
        yield request.param
