"""Fixtures of the catalog: a repository in a folder of its own, and short names for what is done to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import LazySettings

from tests.webadmin.lanes.catalog.compactor import Compactor
from tests.webadmin.lanes.catalog.short import Catalog, new_catalog
from tests.webadmin.service import Service


@pytest.fixture
def catalog(db: None, tmp_path: Path, settings: LazySettings) -> Catalog:
    """A repository in a transaction that is rolled back."""
    settings.OBJECT_STORE_URL = str(tmp_path / "objects")
    return new_catalog()


@pytest.fixture
def real_catalog(transactional_db: None, tmp_path: Path, settings: LazySettings) -> Catalog:
    """A repository with real commits, for several connections."""
    settings.OBJECT_STORE_URL = str(tmp_path / "objects")
    return new_catalog()


@pytest.fixture
def compactor(service: Service, catalog: Catalog) -> Compactor:
    """The repository on the schedule, with one node. One sealed token is a reason to compact."""
    compactor = Compactor(service, catalog, service.worker())
    compactor.set(sealed_tokens=1)
    return compactor
