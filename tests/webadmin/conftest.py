"""Fixtures of everything that needs the database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

from tests.database import clock  # noqa: F401  (a fixture)
from tests.webadmin.service import Service

# Every test's client builds the middleware anew: it would read through all static files each time.
settings.WHITENOISE_AUTOREFRESH = True


@pytest.fixture
def service(db: None, clock) -> Service:  # noqa: F811
    """The schedule in a transaction that is rolled back; ``service.clock`` is the database's clock."""
    return Service(clock)


@pytest.fixture
def real_service(transactional_db: None, clock) -> Iterator[Service]:  # noqa: F811
    """The schedule with real commits, for tests with more than one connection."""
    return Service(clock)
