"""Fixtures of everything that needs the database."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from django.conf import settings

from tests.database import clock  # noqa: F401  (a fixture)
from tests.webadmin.service import Service

# Every test's client builds the middleware anew: it would read through all static files each time.
settings.WHITENOISE_AUTOREFRESH = True

_numbers = count()


@pytest.fixture
def service(db: None, clock) -> Service:  # noqa: F811
    """The schedule in a transaction that is rolled back; ``service.clock`` is the database's clock."""
    return Service(clock)


@pytest.fixture
def real_service(transactional_db: None, clock) -> Iterator[Service]:  # noqa: F811
    """The schedule with real commits, for tests with more than one connection."""
    return Service(clock)


@pytest.fixture(autouse=True)
def own_object_store(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give each test an object store of its own: what one writes there, a position of its log among it, is none of
    another's matter."""
    folder = tmp_path_factory.getbasetemp() / f"objects-{next(_numbers)}"
    monkeypatch.setattr(settings, "OBJECT_STORE_URL", f"file://{folder}")
