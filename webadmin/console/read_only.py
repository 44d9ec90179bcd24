"""The base of admin pages that show and never change: bounded lists, and detail pages made of sections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from unfold.admin import ModelAdmin

from webadmin.console.paginator import BoundedPaginator
from webadmin.console.sections import Section

ROWS_PER_PAGE = 50


class ReadOnlyAdmin(ModelAdmin):
    """Lists rows newest first and shows one row as ``sections``; a subclass says which columns and which sections."""

    actions = None
    list_per_page = ROWS_PER_PAGE
    list_fullwidth = True
    list_filter_submit = True
    show_full_result_count = False
    # A click on a header would sort a large table by a column without an index.
    sortable_by = ()
    paginator = BoundedPaginator
    about = ""
    """One or two sentences above the list: what a row is, and what to look at."""
    empty_list = "Nothing here."
    list_before_template = "console/list_about.html"

    def sections(self, row: Any) -> Sequence[Section]:
        """Return what the page of this row shows."""
        raise NotImplementedError

    def heading(self, row: Any) -> str:
        """Return the title of the row's page."""
        return f"{str(self.opts.verbose_name).capitalize()} {row}"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show one row; there is no form to build."""
        row = self.get_object(request, object_id)
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        if row is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "original": row,
            "title": self.heading(row),
            "sections": self.sections(row),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "console/detail.html", context)
