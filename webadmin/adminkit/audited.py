"""Auditing of pages that Django generates, for users and beat's schedule: their changes are in the audit log too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from webadmin.base.access.services import record_audit

TARGET_MAX = 250


class AuditedAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # has no parameters at run time
    """Write an audit entry beside each entry of Django's own history, in the transaction of the change."""

    audited_actions: tuple[str, ...] = ()
    """Names of actions on selected rows that write nothing into Django's history."""

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        """Record that a row was added."""
        _record(request, _about("add", obj), obj, message)
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> Any:
        """Record that a row was changed, and which fields."""
        _record(request, _about("change", obj), obj, message)
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        """Record that rows are about to be deleted."""
        for obj in queryset:
            _record(request, _about("delete", obj), obj)
        return super().log_deletions(request, queryset)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Return the actions, with those of ``audited_actions`` wrapped so that they write audit entries."""
        actions: dict[str, Any] = super().get_actions(request)
        return {
            name: (_audited(run, name) if name in self.audited_actions else run, name, label)
            for name, (run, _, label) in actions.items()
        }


def _audited(run: Callable[..., Any], name: str) -> Callable[..., Any]:
    def audited(model_admin: admin.ModelAdmin[Any], request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        with transaction.atomic():
            for obj in queryset:
                _record(request, name, obj)
            return run(model_admin, request, queryset)

    return audited


def _about(verb: str, obj: Model) -> str:
    return f"{verb}_{obj._meta.model_name}"


def _record(request: HttpRequest, action: str, obj: Model, changes: Any = ()) -> None:
    record_audit(
        actor=f"user:{request.user.get_username()}",
        action=action,
        target=str(obj)[:TARGET_MAX],
        detail={"model": obj._meta.label, "id": str(obj.pk), "changes": changes or []},
    )
