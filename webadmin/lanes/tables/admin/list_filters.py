"""Filters of the lists of tables, chunks, tasks and files."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from webadmin.adminkit.filters import StateFilter
from webadmin.lanes.tables.models import DataSource
from webadmin.lanes.tables.states import ChunkStatus, TaskState

TABLES_SHOWN = 100


class SourceFilter(admin.SimpleListFilter):
    """Filter rows by table."""

    title = "table"
    parameter_name = "source"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [(str(row.id), str(row)) for row in DataSource.objects.order_by("tenant", "name")[:TABLES_SHOWN]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value() or ""
        return queryset.filter(source=int(value)) if value.isascii() and value.isdecimal() else queryset


class ChunkStateFilter(admin.SimpleListFilter):
    """Filter chunks by state, or by quarantine."""

    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [*ChunkStatus.choices, ("quarantined", "quarantined")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "quarantined":
            return queryset.filter(is_quarantined=True)
        return queryset.filter(state=self.value()) if self.value() in ChunkStatus.values else queryset


class TaskStateFilter(StateFilter):
    """Filter tasks by state."""

    states = TaskState
