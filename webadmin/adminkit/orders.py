"""Operators' orders in the admin: a page with a form, then what the order would do, then what it did.

An order is data: its form, and the service function that carries it out and can be asked what it would do. The pages
decide nothing; whoever may change rows of the model may give its orders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from unfold.widgets import UnfoldAdminTextInputWidget

from engine.core.errors import LithifyError
from webadmin.adminkit import formatting as show
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.adminkit.sections import Facts, Section, Table

ROWS_MAX = 1000
WHY_MAX = 500
PREVIEW, APPLY = "preview", "apply"
CHANGED = "This is not what was previewed, or it was done already: look at the new preview first."
QUIET_KEYS = {"dry_run", "action"}
"""Of an outcome: what the page itself says already."""


class Outcome(Protocol):
    """What a service answers."""

    def to_json(self) -> dict[str, Any]: ...


class OrderForm(forms.Form):
    """What every order is asked for; the audit keeps it."""

    why = forms.CharField(
        label="Why",
        max_length=WHY_MAX,
        widget=UnfoldAdminTextInputWidget,
        help_text="Stays in the audit log and beside what is changed.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOrder:
    """``give`` is called with the chosen rows, the form's values, the operator's name and whether it is a dry run.

    ``of_rows`` says that it is about chosen rows; other orders stand above the list. ``initial`` fills the form.
    ``shows_outcome``: what it did is shown on a page of its own, once, instead of a line above the list.
    ``state_of`` is what of a row the order changes: when it is not what it was at the preview, the order is not carried
    out, so that a page that is sent again does nothing twice.
    """

    name: str
    label: str
    about: str
    give: Callable[[Sequence[Any], Mapping[str, Any], str, bool], Outcome]
    form: type[OrderForm] = OrderForm
    of_rows: bool = True
    shows_outcome: bool = False
    state_of: Callable[[Any], object] = lambda row: None
    fits: Callable[[Any], bool] = lambda row: True
    initial: Callable[[Sequence[Any]], Mapping[str, Any]] = lambda rows: {}


class OrderedAdmin(ReadOnlyAdmin):
    """A read-only page whose rows can be the subject of orders."""

    orders: Sequence[OperatorOrder] = ()
    actions = ()

    def may_order(self, request: HttpRequest) -> bool:
        """Say whether this operator may give orders about the model."""
        return bool(request.user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}"))

    def order_rows(self, ids: Sequence[str]) -> QuerySet:
        """Return the chosen rows."""
        return self.model._default_manager.filter(pk__in=ids)

    def get_urls(self) -> list[URLPattern]:
        """Add the orders' pages before the rows' own, whose address would fit them too."""
        view = self.admin_site.admin_view(self.order_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_order"
        return [path("order/<slug:name>/", view, name=name), *super().get_urls()]

    def get_actions(self, request: HttpRequest) -> dict[str, tuple[Callable[..., HttpResponse], str, str]]:
        """Offer the orders about rows where rows are ticked."""
        if not self.may_order(request):
            return {}
        return {order.name: (_choose(order.name), order.name, order.label) for order in self.orders if order.of_rows}

    def order_address(self, order: OperatorOrder, ids: Sequence[object] = ()) -> str:
        """Return the address of an order's page."""
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_order"
        return reverse(name, args=[order.name], query={"ids": ",".join(map(str, ids))} if ids else None)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list, with the orders that are about no rows."""
        free = [order for order in self.orders if not order.of_rows] if self.may_order(request) else []
        links = [(order.label, self.order_address(order)) for order in free]
        return super().changelist_view(request, {"order_links": links} | (extra_context or {}))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show one row, with the orders about it."""
        row = self.get_object(request, object_id)
        links = []
        if row is not None and self.may_order(request):
            fitting = [order for order in self.orders if order.of_rows and order.fits(row)]
            links = [(order.label, self.order_address(order, [row.pk])) for order in fitting]
        return super().change_view(request, object_id, form_url, {"order_links": links} | (extra_context or {}))

    def order_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Ask, say what would be done, do it."""
        order = next((order for order in self.orders if order.name == name), None)
        if order is None:
            raise Http404
        if not self.may_order(request):
            raise PermissionDenied
        rows = self._chosen(request) if order.of_rows else []
        if order.of_rows and not rows:
            messages.warning(request, "Choose rows first.")
            return HttpResponseRedirect(self._list_address())
        form = order.form(request.POST or None, initial={**order.initial(rows), **dict(request.GET.items())})
        outcome, step = None, request.POST.get("step", "")
        if step in (PREVIEW, APPLY) and form.is_valid():
            seen = request.POST.get("previewed", "")
            if step == APPLY and seen and seen != _digest(order, rows, form):
                step = PREVIEW
                form.add_error(None, CHANGED)
            outcome = self._give(order, rows, form, request, is_dry_run=step == PREVIEW)
            if outcome is not None and step == APPLY and order.shows_outcome:
                return self._outcome_page(request, order, outcome)
            if outcome is not None and step == APPLY:
                messages.success(request, f"{order.label}: {summary(outcome)}")
                return HttpResponseRedirect(self.back_address(rows))
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": order.label,
            "order": order,
            "chosen": [str(row) for row in rows[:20]],
            "chosen_more": max(0, len(rows) - 20),
            "ids": ",".join(str(row.pk) for row in rows),
            "form": form,
            "preview": outcome_sections(outcome) if outcome is not None else [],
            "previewed": _digest(order, rows, form) if outcome is not None else "",
            "back": self.back_address(rows),
        }
        return TemplateResponse(request, "console/order.html", context)

    def _give(
        self, order: OperatorOrder, rows: Sequence[Model], form: OrderForm, request: HttpRequest, *, is_dry_run: bool
    ) -> dict[str, Any] | None:
        """Give the order to its service; what the service refuses stands at the form."""
        try:
            return order.give(rows, form.cleaned_data, request.user.get_username(), is_dry_run).to_json()
        except LithifyError as error:
            form.add_error(None, str(error))
            return None

    def _outcome_page(self, request: HttpRequest, order: OperatorOrder, outcome: dict[str, Any]) -> HttpResponse:
        """Show what was done. Pages of the admin are never stored by a cache."""
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": order.label,
            "sections": outcome_sections(outcome, title="Result"),
            "back": self._list_address(),
        }
        return TemplateResponse(request, "console/order_done.html", context, headers={"Cache-Control": "no-store"})

    def _chosen(self, request: HttpRequest) -> list[Model]:
        text = request.POST.get("ids") or request.GET.get("ids") or ""
        ids = [part for part in text.split(",") if part.isascii() and part.isdigit() and len(part) < 19][:ROWS_MAX]
        return list(self.order_rows(ids))

    def back_address(self, rows: Sequence[Any]) -> str:
        """Return where an order about these rows leads back to: the list."""
        return self._list_address()

    def _list_address(self) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")


def _choose(name: str) -> Callable[[OrderedAdmin, HttpRequest, QuerySet], HttpResponse]:
    """Return what the list does with ticked rows: it leads to the order's page."""

    def choose(page: OrderedAdmin, request: HttpRequest, rows: QuerySet) -> HttpResponse:
        order = next(order for order in page.orders if order.name == name)
        ids = list(rows.order_by("-pk").values_list("pk", flat=True)[:ROWS_MAX])
        return HttpResponseRedirect(page.order_address(order, ids))

    return choose


def _digest(order: OperatorOrder, rows: Sequence[Any], form: OrderForm) -> str:
    """Return what tells one filled form, about rows in one state, from another."""
    seen = (sorted(form.cleaned_data.items()), [order.state_of(row) for row in rows])
    return hashlib.sha256(repr(seen).encode()).hexdigest()


def summary(outcome: Mapping[str, Any]) -> str:
    """Return in words what an order did."""
    if isinstance(outcome.get("changed"), list):
        left = outcome.get("left") or []
        text = f"{show.count_text(len(outcome['changed']))} changed"
        return f"{text}, {len(left)} left: {left[0].get('reason', '')}" if left else text
    if outcome.get("changed") is False or ("command" in outcome and outcome["command"] is None):
        return "it was so already"
    return "done"


def outcome_sections(outcome: Mapping[str, Any], title: str = "What it would do") -> list[Section]:
    """Return what an order would do, or did, as facts and tables."""
    facts = [(_words(name), _fact(name, value)) for name, value in outcome.items() if _is_fact(name, value)]
    sections: list[Section] = [Facts(title=title, rows=facts)] if facts else []
    for name, value in outcome.items():
        if isinstance(value, list) and not (name == "commands" and not value):
            sections.append(_table(name, value))
    return sections


def _is_fact(name: str, value: object) -> bool:
    return name not in QUIET_KEYS and not isinstance(value, list) and not (name == "command" and value is None)


def _table(name: str, values: Sequence[Any]) -> Table:
    title = f"{_words(name)} ({show.count_text(len(values))})"
    if name == "notes":
        return Table(title="Notes", headers=("What follows",), rows=[(value,) for value in values])
    if values and isinstance(values[0], dict):
        headers = tuple(_words(key) for key in values[0])
        return Table(title=title, headers=headers, rows=[_row(value) for value in values[:200]])
    return Table(title=title, headers=("Name",), rows=[(show.code(value),) for value in values[:200]])


def _row(values: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(_value(name, value) for name, value in values.items())


def _fact(name: str, value: Any) -> object:
    if name == "valid_until_ms":
        return "further notice" if value is None else f"{show.moment_text(value)} UTC"
    return _value(name, value)


def _value(name: str, value: Any) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and name.endswith("_ms"):
        return show.moment_text(value)
    if is_number and (name == "bytes" or name.endswith("_bytes")):
        return show.size_text(value)
    if isinstance(value, dict):
        return " ".join(str(part) for part in value.values() if part not in ("", None))
    if value is None:
        return show.NOTHING
    return ("no", "yes")[value] if isinstance(value, bool) else value


def _words(name: str) -> str:
    return name.replace("_ms", "").replace("_", " ").capitalize()
