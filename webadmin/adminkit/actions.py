"""Operators' actions in the admin: a page with a form, then a preview, then the outcome.

The fields of the form are those of the action. The pages contain no rules; a user who may change rows of the model may
run its actions.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from engine.core.errors import LithifyError
from webadmin.adminkit import formatting as show
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.adminkit.sections import Facts, Section, Table
from webadmin.base.actions.action import ActionContext, OperatorAction, joined

ROWS_MAX = 1000
PREVIEW, APPLY = "preview", "apply"
CHANGED = "The preview is outdated: the form or the rows have changed. Check the new preview."
QUIET_KEYS = {"dry_run", "action"}
"""Keys of an outcome that the page itself shows already."""


class ActionForm(forms.Form):
    """The form of an action."""

    action: ClassVar[OperatorAction]

    def values(self) -> dict[str, Any]:
        """Return the values of the fields of the valid form. Raises LithifyError."""
        return {field.name: field.from_form(self.cleaned_data) for field in self.action.page_fields}


@functools.cache
def form_of(action: OperatorAction) -> type[ActionForm]:
    """Return the form of an action."""
    fields = {name: field for each in action.page_fields for name, field in each.form_fields().items()}
    return type("Form", (ActionForm,), fields | {"action": action, "__doc__": action.about})


class ActionAdmin(ReadOnlyAdmin):
    """A read-only page with actions on its rows."""

    operator_actions: Sequence[OperatorAction] = ()
    actions: Sequence[Any] = ()

    def may_act(self, request: HttpRequest) -> bool:
        """Return whether the user may run actions on the model."""
        return bool(request.user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}"))

    def action_rows(self, ids: Sequence[str]) -> QuerySet[Any]:
        """Return the selected rows."""
        rows: QuerySet[Any] = self.model._default_manager.filter(pk__in=ids)
        return rows

    def get_urls(self) -> list[URLPattern]:
        """Add the actions' pages before the rows' own, whose URL pattern would match them too."""
        view = self.admin_site.admin_view(self.action_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_action"
        return [path("action/<slug:name>/", view, name=name), *super().get_urls()]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Return the actions on selected rows for the list."""
        if not self.may_act(request):
            return {}
        of_rows = [action for action in self.operator_actions if action.is_of_rows]
        return {action.name: (_choose(action.name), action.name, action.label) for action in of_rows}

    def action_address(self, action: OperatorAction, ids: Sequence[object] = ()) -> str:
        """Return the URL of an action's page."""
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_action"
        return reverse(name, args=[action.name], query={"ids": ",".join(map(str, ids))} if ids else None)

    def changelist_view(  # type: ignore[override]  # the theme says a narrower response
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Render the list, with the actions that apply to no rows."""
        free = [action for action in self.operator_actions if not action.is_of_rows] if self.may_act(request) else []
        links = [(action.label, self.action_address(action)) for action in free]
        return super().changelist_view(request, {"action_links": links} | (extra_context or {}))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Render one row, with its actions."""
        row = self.get_object(request, object_id)
        links = []
        if row is not None and self.may_act(request):
            fitting = [action for action in self.operator_actions if action.is_of_rows and action.fits(row)]
            links = [(action.label, self.action_address(action, [row.pk])) for action in fitting]
        return super().change_view(request, object_id, form_url, {"action_links": links} | (extra_context or {}))

    def action_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Render the form of an action, its preview, or its outcome."""
        action = next((action for action in self.operator_actions if action.name == name), None)
        if action is None:
            raise Http404
        if not self.may_act(request):
            raise PermissionDenied
        rows = self._chosen(request) if action.is_of_rows else []
        if action.is_of_rows and not rows:
            messages.warning(request, "Select rows first.")
            return HttpResponseRedirect(self._list_address())
        form = form_of(action)(request.POST or None, initial={**action.initial(rows), **dict(request.GET.items())})
        outcome, step = None, request.POST.get("step", "")
        if step in (PREVIEW, APPLY) and form.is_valid():
            seen = request.POST.get("previewed", "")
            if step == APPLY and seen and seen != _digest(action, rows, form):
                step = PREVIEW
                form.add_error(None, CHANGED)
            outcome = self._give(action, rows, form, request, is_dry_run=step == PREVIEW)
            if outcome is not None and step == APPLY and action.shows_outcome:
                return self._outcome_page(request, action, outcome)
            if outcome is not None and step == APPLY:
                messages.success(request, f"{action.label}: {summary(outcome)}")
                return HttpResponseRedirect(self.back_address(rows))
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": action.label,
            "action": action,
            "chosen": [str(row) for row in rows[:20]],
            "chosen_more": max(0, len(rows) - 20),
            "ids": ",".join(str(row.pk) for row in rows),
            "form": form,
            "preview": outcome_sections(outcome) if outcome is not None else [],
            "previewed": _digest(action, rows, form) if outcome is not None else "",
            "back": self.back_address(rows),
        }
        return TemplateResponse(request, "console/action.html", context)

    def _give(
        self, action: OperatorAction, rows: Sequence[Model], form: ActionForm, request: HttpRequest, *, is_dry_run: bool
    ) -> dict[str, Any] | None:
        """Run the action's service; an error of the service is shown at the form."""
        context = ActionContext(actor=request.user.get_username(), why=form.cleaned_data["why"], is_dry_run=is_dry_run)
        try:
            values = form.values()
            del values["why"]
            targets = [{}] if action.of_rows is None else action.of_rows(rows)
            outcomes = [action.apply({**target, **values}, context) for target in targets]
            return joined(outcomes) if action.describe is None else dict(action.describe(outcomes, is_dry_run))
        except LithifyError as error:
            form.add_error(None, str(error))
            return None

    def _outcome_page(self, request: HttpRequest, action: OperatorAction, outcome: dict[str, Any]) -> HttpResponse:
        """Render the outcome. Caches never store pages of the admin."""
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": action.label,
            "sections": outcome_sections(outcome, title="Result"),
            "back": self._list_address(),
        }
        return TemplateResponse(request, "console/action_done.html", context, headers={"Cache-Control": "no-store"})

    def _chosen(self, request: HttpRequest) -> list[Model]:
        text = request.POST.get("ids") or request.GET.get("ids") or ""
        ids = [part for part in text.split(",") if part.isascii() and part.isdigit() and len(part) < 19][:ROWS_MAX]
        return list(self.action_rows(ids))

    def back_address(self, rows: Sequence[Any]) -> str:
        """Return the URL of the list to return to after an action on these rows."""
        return self._list_address()

    def _list_address(self) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")


def _choose(name: str) -> Callable[[ActionAdmin, HttpRequest, QuerySet[Any]], HttpResponse]:
    """Return the list's handler of selected rows: it redirects to the action's page."""

    def choose(page: ActionAdmin, request: HttpRequest, rows: QuerySet[Any]) -> HttpResponse:
        action = next(action for action in page.operator_actions if action.name == name)
        ids = list(rows.order_by("-pk").values_list("pk", flat=True)[:ROWS_MAX])
        return HttpResponseRedirect(page.action_address(action, ids))

    return choose


def _digest(action: OperatorAction, rows: Sequence[Any], form: ActionForm) -> str:
    """Return a digest of the filled form and the state of its rows."""
    seen = (sorted(form.cleaned_data.items()), [action.state_of(row) for row in rows])
    return hashlib.sha256(repr(seen).encode()).hexdigest()


def summary(outcome: Mapping[str, Any]) -> str:
    """Return a summary of an outcome as text."""
    if isinstance(outcome.get("changed"), list):
        left = outcome.get("left") or []
        text = f"{show.count_text(len(outcome['changed']))} changed"
        return f"{text}, {len(left)} unchanged: {left[0].get('reason', '')}" if left else text
    if outcome.get("changed") is False or ("command" in outcome and outcome["command"] is None):
        return "no changes"
    return "done"


def outcome_sections(outcome: Mapping[str, Any], title: str = "Expected changes") -> list[Section]:
    """Return an outcome, or its preview, as facts and tables."""
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
        return Table(title="Notes", headers=("Note",), rows=[(value,) for value in values])
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
