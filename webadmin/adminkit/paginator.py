"""Pages of a table that may have millions of rows: counting stops early, and nobody pages that deep."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.utils.functional import cached_property

ROWS_REACHED_MAX = 10_000
"""Further than this an operator filters, not pages; it also bounds what OFFSET has to skip."""


class BoundedPaginator(Paginator):
    """Counts at most ROWS_REACHED_MAX rows; ``is_cut`` says that there are more."""

    template_name = "console/pagination.html"
    rows_reached_max = ROWS_REACHED_MAX

    @cached_property
    def counted_rows(self) -> int:
        """The number of rows, or one more than can be reached."""
        return self.object_list.order_by()[: self.rows_reached_max + 1].count()

    @property
    def count(self) -> int:
        return min(self.counted_rows, self.rows_reached_max)

    @property
    def is_cut(self) -> bool:
        return self.counted_rows > self.rows_reached_max
