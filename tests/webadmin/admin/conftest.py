"""A signed-in operator, and tests that do not see each other's counted sums."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client


@pytest.fixture(autouse=True)
def _fresh_sums() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def operator(db: None) -> Client:
    """The browser of a superuser."""
    client = Client()
    client.force_login(User.objects.create(username="operator", is_staff=True, is_superuser=True))  # no slow hash
    return client
