"""An object store of the test's own: the list of revoked secrets lies in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.storage import ObjectStore, cached_store


@pytest.fixture(autouse=True)
def store(tmp_path: Path, settings: Any) -> ObjectStore:
    settings.OBJECT_STORE_URL = str(tmp_path / "objects")
    return cached_store(settings.OBJECT_STORE_URL)
