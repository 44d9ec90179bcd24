"""Fixtures of the writer's tests: an index with real commits, because the writer's threads have connections."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.storage import ObjectStore, open_store
from tests.webadmin.ingest.writer.found_profiles import found_profiles


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """An empty store."""
    return open_store(str(tmp_path / "objects"))


@pytest.fixture
def real_index(transactional_db: None) -> None:
    """An index with its first rows and the real clock."""


@pytest.fixture
def found(real_index: None, store: ObjectStore) -> Callable[[], dict[str, int]]:
    """Ask the index for the profiles that queries find, with how often each."""
    return lambda: found_profiles(store)
