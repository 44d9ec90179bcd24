"""Profiles in a store of the test's own, which questions read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.storage import open_store
from tests.webadmin.query.stored import Stored
from tests.webadmin.service import Service


@pytest.fixture
def stored(service: Service, settings: Any, tmp_path: Path) -> Stored:
    settings.OBJECT_STORE_URL = f"file://{tmp_path / 'store'}"
    settings.QUERY_THREADS = 2
    return Stored(service, open_store(settings.OBJECT_STORE_URL), tmp_path / "scratch")
