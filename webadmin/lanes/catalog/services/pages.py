"""Pages of rows listed by name."""

from __future__ import annotations

from typing import TypeVar

from django.db import models

from webadmin.lanes.catalog.errors import CatalogRefused

AMOUNT_MAX = 1000
Row = TypeVar("Row", bound=models.Model)


def checked_amount(amount: int, most: int = AMOUNT_MAX) -> int:
    """Return the number of items of a page. Raises CatalogRefused."""
    if not 0 < amount <= most:
        raise CatalogRefused(f"a page has 1 to {most} items, not {amount}")
    return amount


def page_by_name(
    rows: models.QuerySet[Row], *, prefix: str = "", after: str = "", amount: int = 100
) -> tuple[list[Row], bool]:
    """Return the first rows whose name has a prefix and sorts after another name, and whether there are more."""
    wanted = rows.filter(name__gt=after) if after else rows
    # Names have bytewise collation, so a prefix is one range of the index; LIKE would need a second index.
    if prefix:
        wanted = wanted.filter(name__gte=prefix, name__lt=prefix + "\U0010ffff")
    found = list(wanted.order_by("name")[: checked_amount(amount) + 1])
    return found[:amount], len(found) > amount
