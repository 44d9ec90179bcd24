"""The store in a dictionary keeps the promises of a store."""

from __future__ import annotations

from engine.storage.conformance import check_store
from tests.memory_store import MemoryStore


def test_the_memory_store_conforms() -> None:
    assert [result for result in check_store(MemoryStore()).results if result.fault] == []
