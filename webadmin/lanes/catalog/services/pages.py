"""A page of rows that are listed by name."""

from __future__ import annotations

from typing import TypeVar

from django.db import models

from webadmin.lanes.catalog.errors import CatalogRefused

AMOUNT_MAX = 1000
Row = TypeVar("Row", bound=models.Model)


def checked_amount(amount: int, most: int = AMOUNT_MAX) -> int:
    """Return how many items a page may have, or raise CatalogRefused."""
    if not 0 < amount <= most:
        raise CatalogRefused(f"a page has 1 to {most} items, not {amount}")
    return amount


def page_by_name(
    rows: models.QuerySet[Row], *, prefix: str = "", after: str = "", amount: int = 100
) -> tuple[list[Row], bool]:
    """Return the first rows whose name begins with a prefix and is behind another, and whether there are more."""
    wanted = rows.filter(name__gt=after) if after else rows
    # Names are compared bytewise, so what begins with the prefix is one stretch; LIKE would need a second index.
    if prefix:
        wanted = wanted.filter(name__gte=prefix, name__lt=prefix + "\U0010ffff")
    found = list(wanted.order_by("name")[: checked_amount(amount) + 1])
    return found[:amount], len(found) > amount
