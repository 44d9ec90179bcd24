"""Operators' settings in the admin: limits with their history, pauses, decisions about stops of quarantine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from engine.schedule.limits import LimitName, Scope, ScopeKind
from webadmin.adminkit import formatting as show
from webadmin.adminkit.actions import ActionAdmin
from webadmin.adminkit.sections import Facts, Section
from webadmin.schedule import actions
from webadmin.schedule import operator_queries as queries
from webadmin.schedule.operation_models import IsolationStop, LimitChange, Pause
from webadmin.schedule.wall_times import WallTimeColumns, commanded_ms, with_wall_times

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

BYTES_LIMITS = (LimitName.RUNNING_BYTES_MAX, LimitName.TASK_MEMORY_BYTES)
SECONDS_LIMITS = (LimitName.LEASE_SECONDS, LimitName.CLEANUP_DELAY_SECONDS)


class InForceFilter(admin.SimpleListFilter):
    """Rows in force, or ended ones."""

    title = parameter_name = "now"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [("in_force", "in force"), ("over", "over")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() not in ("in_force", "over"):
            return queryset
        in_force = queries.still_in_force(queryset, queries.command_now_ms())
        if self.value() == "in_force":
            return in_force
        return queryset.exclude(pk__in=in_force.values("pk"))


def scope_text(kind: str, value: str) -> str:
    """Return the scope of a limit or pause as text."""
    return str(Scope(ScopeKind(kind), value))


def until_cell(valid_until_ms: int | None, ended_at_ms: int | None, *, now_ms: int, wall_ms: int) -> SafeString | str:
    """Return how long a row remains in force, or since when it has ended; moments are shown in wall time."""
    lag_ms = wall_ms - now_ms
    if ended_at_ms is not None:
        return show.badge("ended", "quiet", f"about {show.moment_text(ended_at_ms + lag_ms)} UTC")
    if valid_until_ms is None:
        return show.badge("until further notice", "busy")
    left_ms = valid_until_ms - now_ms
    if left_ms <= 0:
        return show.badge("expired", "quiet", f"about {show.moment_text(valid_until_ms + lag_ms)} UTC")
    until = f"until {show.moment_text(valid_until_ms + lag_ms)} UTC"
    return show.badge(f"{show.duration_text(left_ms)} left", "busy", until)


def limit_value(name: str, value: int | None) -> str:
    """Return a limit's value in its unit."""
    if value is None:
        return "removed"
    if value == 0:
        return "without limit" if name != LimitName.CLEANUP_DELAY_SECONDS else "none"
    if name in BYTES_LIMITS:
        return show.size_text(value)
    return show.duration_text(value * 1000) if name in SECONDS_LIMITS else show.count_text(value)


@admin.register(LimitChange)
class LimitChangeAdmin(ActionAdmin):
    """Changes of limits, newest first."""

    list_display = ("name_cell", "scope", "value_cell", "until", "who", "why_cell")
    list_filter = (InForceFilter,)
    shortcuts = (("In force", "now=in_force"), ("Over", "now=over"))
    about = (
        "Limits set at run time, with scope, actor and reason. The narrowest scope applies; when a limit expires, the "
        "previous value applies again. Defaults are on the Limits page."
    )
    empty_list = "No limits set at run time: the defaults on the Limits page apply."
    operator_actions = (actions.SET_LIMIT,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[LimitChange]:
        return with_wall_times(LimitChange.objects.all())

    def heading(self, row: LimitChange) -> str:
        return str(row)

    def sections(self, row: LimitChange) -> Sequence[Section]:
        return [
            Facts(
                title="Limit",
                rows=[
                    ("Limit", row.name),
                    ("For", self.scope(row)),
                    ("Value", self.value_cell(row)),
                    ("Holds", self.until(row)),
                    ("Set by", self.who(row)),
                    ("Why", row.why or show.NOTHING),
                    ("Set at", f"{show.moment_text(commanded_ms(row, row.set_at_ms))} UTC"),
                    ("Command", show.command_link(row.command_index)),
                ],
            )
        ]

    @display(description="Limit")
    def name_cell(self, row: LimitChange) -> str:
        return row.name.replace("_", " ")

    @display(description="For")
    def scope(self, row: LimitChange) -> str:
        return scope_text(row.scope_kind, row.scope_value)

    @display(description="Value")
    def value_cell(self, row: LimitChange) -> str:
        return limit_value(row.name, row.value)

    @display(description="Holds")
    def until(self, row: WithAnnotations[LimitChange, WallTimeColumns]) -> SafeString | str:
        if row.is_superseded:
            return show.badge("replaced", "quiet", "replaced by a later value for the same scope")
        return until_cell(row.valid_until_ms, None, now_ms=row.now_ms, wall_ms=row.wall_ms)

    @display(description="Set by")
    def who(self, row: WithAnnotations[LimitChange, WallTimeColumns]) -> SafeString:
        return show.note(row.actor, f"{show.duration_text(max(0, row.wall_ms - commanded_ms(row, row.set_at_ms)))} ago")

    @display(description="Why")
    def why_cell(self, row: LimitChange) -> str:
        return row.why


@admin.register(Pause)
class PauseAdmin(ActionAdmin):
    """Pauses, in force and ended."""

    list_display = ("scope", "mode_cell", "until", "who", "why_cell")
    list_filter = (InForceFilter,)
    shortcuts = (("In force", "now=in_force"), ("Over", "now=over"))
    about = "Scopes in which planning and assignment are stopped. Running jobs continue; data is accepted."
    empty_list = "No pauses."
    operator_actions = (actions.PAUSE, actions.RESUME)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pause]:
        return with_wall_times(Pause.objects.all())

    def heading(self, row: Pause) -> str:
        return str(row).capitalize()

    def sections(self, row: WithAnnotations[Pause, WallTimeColumns]) -> Sequence[Section]:
        return [
            Facts(
                title="Pause",
                rows=[
                    ("What", str(row)),
                    ("How", self.mode_cell(row)),
                    ("Holds", self.until(row)),
                    ("Since", show.age(commanded_ms(row, row.since_ms), row.wall_ms)),
                    ("Set by", row.actor),
                    ("Why", row.why or show.NOTHING),
                    ("Ended by", row.ended_by or show.NOTHING),
                    ("Command", show.command_link(row.command_index)),
                ],
            )
        ]

    @display(description="What")
    def scope(self, row: Pause) -> str:
        return scope_text(row.scope_kind, row.scope_value)

    @display(description="How")
    def mode_cell(self, row: Pause) -> SafeString:
        meaning = "nothing planned or assigned" if row.mode == "pause" else "nothing planned, planned jobs run"
        return show.badge(row.mode, "warn", meaning)

    @display(description="Holds")
    def until(self, row: WithAnnotations[Pause, WallTimeColumns]) -> SafeString | str:
        return until_cell(row.valid_until_ms, row.ended_at_ms, now_ms=row.now_ms, wall_ms=row.wall_ms)

    @display(description="Set by")
    def who(self, row: WithAnnotations[Pause, WallTimeColumns]) -> SafeString:
        return show.note(row.actor, f"{show.duration_text(max(0, row.wall_ms - commanded_ms(row, row.since_ms)))} ago")

    @display(description="Why")
    def why_cell(self, row: Pause) -> str:
        return row.why


@admin.register(IsolationStop)
class IsolationStopAdmin(ActionAdmin):
    """Stops of quarantine because too many sources of a place were bad, newest first."""

    list_display = ("state_cell", "lane", "place", "reason", "stopped", "who", "why_cell")
    shortcuts = (("Open", "ended_at_ms__isnull=1"), ("Decided", "ended_at_ms__isnull=0"))
    about = (
        "Quarantine stops when over a fifth of the recent sources of a place (a table, a tenant of a bucket, the "
        "whole index) fail alone, cannot be read or are missing, because the object store is then the likely cause. "
        "No further source of the place is quarantined until an operator decides."
    )
    empty_list = "Quarantine was never stopped."
    operator_actions = (actions.DECIDE,)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        return lookup == "ended_at_ms__isnull" or super().lookup_allowed(lookup, value, request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[IsolationStop]:
        return with_wall_times(IsolationStop.objects.all())

    def heading(self, row: IsolationStop) -> str:
        return f"Stop of quarantine of {row.where}"

    def sections(self, row: WithAnnotations[IsolationStop, WallTimeColumns]) -> Sequence[Section]:
        return [
            Facts(
                title="Stop",
                rows=[
                    ("State", self.state_cell(row)),
                    ("Reason", row.reason),
                    ("Sources that cannot be merged", show.count_text(row.bad_sources)),
                    ("Sources merged in the same hour", show.count_text(row.merged_sources)),
                    ("Stopped", show.age(commanded_ms(row, row.at_ms), row.wall_ms)),
                    ("Command", show.command_link(row.command_index)),
                    ("Decided by", row.ended_by or show.NOTHING),
                    ("Why", row.why or show.NOTHING),
                ],
            )
        ]

    @display(description="State")
    def state_cell(self, row: IsolationStop) -> SafeString:
        if row.ended_at_ms is None:
            return show.badge("stopped", "bad", "until an operator decides")
        return show.badge(row.decision, "quiet", row.get_decision_display())

    @display(description="Stopped")
    def stopped(self, row: WithAnnotations[IsolationStop, WallTimeColumns]) -> SafeString | str:
        return show.age(commanded_ms(row, row.at_ms), row.wall_ms)

    @display(description="Decided by")
    def who(self, row: IsolationStop) -> str:
        return row.ended_by or show.NOTHING

    @display(description="Why")
    def why_cell(self, row: IsolationStop) -> str:
        return row.why
