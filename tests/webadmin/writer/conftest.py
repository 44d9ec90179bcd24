"""Fixtures of the writer's tests: an index with real commits, because the writer's threads have connections."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest
from django.apps import apps

from engine.storage import ObjectStore, open_store
from tests.webadmin.writer.found_profiles import found_profiles


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """An empty store."""
    return open_store(str(tmp_path / "objects"))


@pytest.fixture
def real_index(transactional_db: None) -> None:
    """An index with its first rows and the real clock."""
    seed = importlib.import_module("webadmin.schedule.migrations.0002_first_rows")
    seed.add_first_rows(apps, None)  # an earlier test of this kind has emptied all tables


@pytest.fixture
def found(real_index: None, store: ObjectStore) -> Callable[[], dict[str, int]]:
    """Ask the index for the profiles that queries find, with how often each."""
    return lambda: found_profiles(store)
