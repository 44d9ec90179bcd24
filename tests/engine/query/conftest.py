"""A query engine over the store of a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.query.execution import QueryEngine
from engine.storage import ObjectStore


@pytest.fixture
def engine(store: ObjectStore) -> Iterator[QueryEngine]:
    found = QueryEngine(store, threads=3)
    yield found
    found.close()
