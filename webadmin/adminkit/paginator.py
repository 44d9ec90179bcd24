"""Pagination of tables that may have millions of rows: counting stops at a limit."""

from __future__ import annotations

from typing import Any, cast

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.utils.functional import cached_property

ROWS_REACHED_MAX = 10_000
"""Beyond this an operator filters instead of paging; it also bounds the rows that OFFSET skips."""


class BoundedPaginator(Paginator):  # type: ignore[type-arg]  # has no parameters at run time
    """Count at most ROWS_REACHED_MAX rows; ``is_cut``: there are more."""

    template_name = "console/pagination.html"
    rows_reached_max = ROWS_REACHED_MAX

    @cached_property
    def counted_rows(self) -> int:
        """The number of rows, at most one more than can be reached."""
        rows = cast("QuerySet[Any]", self.object_list)
        return rows.order_by()[: self.rows_reached_max + 1].count()

    @property
    def count(self) -> int:
        return min(self.counted_rows, self.rows_reached_max)

    @property
    def is_cut(self) -> bool:
        return self.counted_rows > self.rows_reached_max
