"""The base of read-only admin pages: bounded lists, and detail pages made of sections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.admin import ShowFacets
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from unfold.admin import ModelAdmin
from unfold.views import ChangeList

from webadmin.adminkit.paginator import BoundedPaginator
from webadmin.adminkit.sections import Notice, Section

ROWS_PER_PAGE = 50


class BoundedChangeList(ChangeList):
    """A change list that never counts the whole table: it shows the count of the paginator."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.full_result_count = self.result_count


class ReadOnlyAdmin(ModelAdmin):
    """Lists rows newest first and shows one row as ``sections``; a subclass defines its columns and sections."""

    actions: Sequence[Any] | None = None
    list_per_page = ROWS_PER_PAGE
    list_fullwidth = True
    list_filter_submit = True
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    # Sorting by a header would sort a large table by a column without an index.
    sortable_by = ()
    paginator = BoundedPaginator
    about = ""
    """One or two sentences above the list: what a row is, and which columns matter."""
    empty_list = "Nothing here."
    shortcuts: Sequence[tuple[str, str]] = ()
    """The most frequent filters of the list: a label and a query string."""
    list_before_template = "console/list_about.html"  # type: ignore[assignment]  # None in the theme's class
    change_list_class: type[BoundedChangeList] = BoundedChangeList

    def sections(self, row: Any) -> Sequence[Section]:
        """Return the sections of the page of this row."""
        raise NotImplementedError

    def notices(self, row: Any) -> Sequence[Notice]:
        """Return the notices above the sections: sentences that answer the first question about the row."""
        return ()

    def heading(self, row: Any) -> str:
        """Return the title of the row's page."""
        return f"{str(self.opts.verbose_name).capitalize()} {row}"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    # The theme annotates an instance, and a narrower response below.
    def get_changelist(  # type: ignore[override]  # see above
        self, request: HttpRequest, **options: Any
    ) -> type[BoundedChangeList]:
        return self.change_list_class

    def changelist_view(  # type: ignore[override]
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Render the list under its plain name, with its shortcuts."""
        query = request.META.get("QUERY_STRING", "")
        every = [("All", ""), *self.shortcuts] if self.shortcuts else []
        context = {
            "title": str(self.opts.verbose_name_plural).capitalize(),
            "shortcuts": [(word, query_string, query_string == query) for word, query_string in every],
        }
        return super().changelist_view(request, context | (extra_context or {}))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Render one row without a form."""
        row = self.get_object(request, object_id)
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        if row is None:
            redirect: HttpResponse = self._get_obj_does_not_exist_redirect(  # type: ignore[attr-defined]  # not in the stub
                request, self.opts, object_id
            )
            return redirect
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "original": row,
            "title": self.heading(row),
            "notices": self.notices(row),
            "sections": self.sections(row),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "console/detail.html", context)
