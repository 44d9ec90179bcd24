"""What a monitoring system asks: with the token of the installation."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.test import Client


def probe(path: str) -> Any:
    """Return the answer to a GET with METRICS_TOKEN."""
    return Client().get(path, headers={"Authorization": f"Bearer {settings.METRICS_TOKEN}"})
