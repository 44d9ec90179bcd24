"""List filters that do not query the table: known choices, and exact values typed in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from django.contrib import admin
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import TextFilter

HOUR_MS = 3_600_000
TIME_SPANS = (("1h", "the last hour", HOUR_MS), ("6h", "6 hours", 6 * HOUR_MS), ("1d", "day", 24 * HOUR_MS))
LEVELS = range(4)


class ExactFilter(TextFilter):
    """Rows whose ``column`` equals the typed value; a non-number for a number column matches nothing."""

    column = ""
    is_number = False

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        text = (self.value() or "").strip()
        if not text:
            return queryset
        if self.is_number and not (text.isascii() and text.isdigit() and len(text) < 19):
            return queryset.none()
        return queryset.filter(**{self.column: int(text) if self.is_number else text})


class StateFilter(admin.SimpleListFilter):
    """Rows of one state; the choices are ``states``."""

    title = parameter_name = "state"
    states: ClassVar[type[models.TextChoices]]

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [*self.states.choices]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(state=self.value()) if self.value() in self.states.values else queryset


class LevelFilter(admin.SimpleListFilter):
    """Rows of one compaction level."""

    title = parameter_name = "level"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(str(level), f"level {level}") for level in LEVELS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        level = self.value()
        return queryset.filter(level=int(level)) if level in {str(known) for known in LEVELS} else queryset


class ShardFilter(ExactFilter):
    """Rows of one shard."""

    title = parameter_name = column = "shard"
    is_number = True


class TenantNameFilter(ExactFilter):
    """Rows of one tenant where the table holds its name; segments have no tenant."""

    title = parameter_name = column = "tenant"


class TenantRowFilter(ExactFilter):
    """Rows of one tenant by name where the table references it; segments belong to none."""

    title = parameter_name = "tenant"
    column = "tenant__name"
