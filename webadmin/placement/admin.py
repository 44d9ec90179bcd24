"""Placement in the admin: the fleet, the rules with their reasons, and operators' settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.decorators import display

from engine.placement.model import LoadBalancing
from engine.placement.rate import format_rate
from webadmin.adminkit import formatting as show
from webadmin.adminkit.actions import ActionAdmin
from webadmin.adminkit.filters import ExactFilter, TenantNameFilter
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.adminkit.sections import Facts, Section, Table
from webadmin.placement.models import (
    Instance,
    PlacementChange,
    PlacementLimit,
    PlacementOverride,
    RingChange,
    RuleChange,
    RulesVersion,
    Slot,
)
from webadmin.placement.operator_settings import limit_values, override_values
from webadmin.placement.placement_actions import INSTANCE_ACTIONS, LIMIT_ACTIONS, OVERRIDE_ACTIONS

CHANGES_SHOWN = 100
HISTORY_SHOWN = 30
SHARDS_NAMED = 64


class DatasetFilter(ExactFilter):
    """Rows of one dataset."""

    title = parameter_name = column = "dataset"


class PresentFilter(admin.SimpleListFilter):
    """Instances that are present, or those that have left."""

    title = parameter_name = "now"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [("there", "there"), ("gone", "gone")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "there":
            return queryset.filter(left_at_ms=None)
        return queryset.exclude(left_at_ms=None) if self.value() == "gone" else queryset


def values_text(values: dict[str, Any] | None) -> str:
    """Return values of a setting as text."""
    if not values:
        return "nothing"
    return ", ".join(f"{name.replace('_', ' ')} {_value(name, value)}" for name, value in values.items())


def _value(name: str, value: Any) -> str:
    if name == "load_balancing":
        word = value if isinstance(value, str) else LoadBalancing(value).name.lower()
        return word.replace("_", " ")
    if name == "unit_bytes":
        return f"{show.size_text(value)}/s"
    if name.endswith("_window_s"):
        return show.duration_text(int(value * 1000))
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@admin.register(Instance)
class InstanceAdmin(ActionAdmin):
    """The fleet of segment writers."""

    list_display = ("name", "zone_cell", "state_cell", "heartbeat", "tokens", "address")
    list_filter = (PresentFilter,)
    shortcuts = (("There", "now=there"), ("Gone", "now=gone"))
    about = (
        "Segment writers; they register automatically. A silent writer receives no pushes after seconds and loses its "
        "shards after a minute. Drain a writer to remove it without data loss."
    )
    empty_list = "No segment writer has registered: start one with manage.py writer."
    operator_actions = INSTANCE_ACTIONS

    def heading(self, row: Instance) -> str:
        return f"Instance {row.name}"

    def sections(self, row: Instance) -> Sequence[Section]:
        shards = list(Slot.objects.filter(zone="", instance=row.name).values_list("shard", flat=True))
        named = ", ".join(map(str, shards[:SHARDS_NAMED])) + (" …" if len(shards) > SHARDS_NAMED else "")
        return [
            Facts(
                title="Instance",
                rows=[
                    ("State", self.state_cell(row)),
                    ("Zone", row.zone or "none"),
                    ("Address", show.code(row.address)),
                    ("Tokens", row.tokens),
                    ("Build", row.build or show.NOTHING),
                    ("Registered", f"{show.moment_text(row.registered_at_ms)} UTC"),
                    ("Last heartbeat", f"{show.moment_text(row.heartbeat_at_ms)} UTC"),
                    ("Left", f"{show.moment_text(row.left_at_ms)} UTC" if row.left_at_ms else show.NOTHING),
                    ("Shards", f"{len(shards)}: {named}" if shards else "none"),
                    ("Ring and load", show.link(reverse("placement-page"), "show")),
                ],
            )
        ]

    @display(description="Zone")
    def zone_cell(self, row: Instance) -> str:
        return row.zone or show.NOTHING

    @display(description="State")
    def state_cell(self, row: Instance) -> SafeString:
        if row.left_at_ms is not None:
            return show.badge("gone", "quiet", f"since {show.moment_text(row.left_at_ms)} UTC")
        return show.badge(row.state, "good" if row.state == Instance.State.ACTIVE else "busy")

    @display(description="Heartbeat (UTC)")
    def heartbeat(self, row: Instance) -> str:
        return show.moment_text(row.heartbeat_at_ms)


@admin.register(RingChange)
class RingChangeAdmin(ReadOnlyAdmin):
    """Changes of the ring."""

    list_display = ("version", "at", "reason", "shards", "instance_count", "moved_slots", "actor")
    about = "Changes of the ring: instances that joined or left, and slots of the shard map that moved."
    empty_list = "No segment writer has registered yet."

    def sections(self, row: RingChange) -> Sequence[Section]:
        return [
            Facts(
                title="Change",
                rows=[
                    ("When (UTC)", self.at(row)),
                    ("Reason", row.reason),
                    ("By", row.actor),
                    ("Shards", row.shards),
                    ("Instances", row.instance_count),
                    ("Moved slots", row.moved_slots),
                ],
            )
        ]

    @display(description="When (UTC)")
    def at(self, row: RingChange) -> str:
        return show.moment_text(row.at_ms)


@admin.register(RulesVersion)
class RulesVersionAdmin(ReadOnlyAdmin):
    """Versions of the rules that differ from the previous one."""

    list_display = ("version", "at", "reason", "change_count", "dataset_count", "written")
    about = (
        "Shards of each dataset, computed from write rates every 15 seconds. A version is listed if it differs from "
        "the previous one; open it for the changes and their reasons."
    )
    empty_list = "No rules yet: start beat and a control worker."

    def heading(self, row: RulesVersion) -> str:
        return f"Placement rules {row.version}"

    def sections(self, row: RulesVersion) -> Sequence[Section]:
        changes = RuleChange.objects.filter(version=row.version).order_by("id")[:CHANGES_SHOWN]
        left = row.change_count - CHANGES_SHOWN
        return [
            Facts(
                title="Version",
                rows=[
                    ("Built (UTC)", self.at(row)),
                    ("Datasets", row.dataset_count),
                    ("Changed datasets", row.change_count),
                    ("Write rate", self.written(row)),
                ],
            ),
            Table(
                title="Changes and reasons",
                headers=("Dataset", "Before", "After", "Why"),
                rows=[
                    (
                        show.note(show.name(change.dataset or "(no name)"), change.tenant),
                        values_text(change.before),
                        values_text(change.after),
                        change.reason,
                    )
                    for change in changes
                ],
                empty="First version of the rules.",
                more=f"{show.counted(left, 'more change')} not shown." if left > 0 else "",
            ),
        ]

    @display(description="Built (UTC)")
    def at(self, row: RulesVersion) -> str:
        return show.moment_text(row.at_ms)

    @display(description="Written")
    def written(self, row: RulesVersion) -> str:
        return format_rate(row.usage_bytes)


@admin.register(RuleChange)
class RuleChangeAdmin(ReadOnlyAdmin):
    """Changes of single datasets' rules."""

    list_display = ("dataset_cell", "at", "before_cell", "after_cell", "reason")
    list_filter = (TenantNameFilter, DatasetFilter)
    about = "History of the rules by dataset. Filter by tenant and dataset."
    empty_list = "No rule has changed yet."

    def heading(self, row: RuleChange) -> str:
        return f"{row.tenant}/{row.dataset}"

    def sections(self, row: RuleChange) -> Sequence[Section]:
        before = RuleChange.objects.filter(tenant=row.tenant, dataset=row.dataset, id__lte=row.id).order_by("-id")
        version = RulesVersion.objects.filter(version=row.version).first()
        return [
            Facts(title="Change", rows=[("Reason", row.reason), ("Rules", show.row_link(version))]),
            Table(
                title="Earlier changes of this dataset",
                headers=("When (UTC)", "After", "Why"),
                rows=[(self.at(one), self.after_cell(one), one.reason) for one in before[:HISTORY_SHOWN]],
            ),
        ]

    @display(description="Dataset")
    def dataset_cell(self, row: RuleChange) -> SafeString:
        return show.note(show.name(row.dataset or "(no name)"), row.tenant)

    @display(description="When (UTC)")
    def at(self, row: RuleChange) -> str:
        return show.moment_text(row.at_ms)

    @display(description="Before")
    def before_cell(self, row: RuleChange) -> str:
        return _shards_text(row.before)

    @display(description="After")
    def after_cell(self, row: RuleChange) -> str:
        return _shards_text(row.after)


def _shards_text(rule: dict[str, Any] | None) -> str:
    """Return the shards of a rule as text."""
    if rule is None:
        return "no rule"
    if rule["shards"]:
        return f"pinned to {', '.join(map(str, rule['shards']))}"
    way = rule["load_balancing"].replace("_", " ")
    return f"{show.counted(rule['dataset_shards'], 'shard')}, {way}"


class DecidedAdmin(ActionAdmin):
    """Rows that operators set, with their history."""

    subject = ""
    values: Any = None

    def history(self, row: Any) -> Table:
        """Return who made which change."""
        dataset = getattr(row, "dataset", "")
        changes = PlacementChange.objects.filter(subject=self.subject, tenant=row.tenant, dataset=dataset)
        return Table(
            title="Decisions",
            headers=("When (UTC)", "Who", "Set", "Why"),
            rows=[
                (show.moment_text(one.at_ms), one.actor, values_text(one.after), one.why or show.NOTHING)
                for one in changes.order_by("-id")[:HISTORY_SHOWN]
            ],
        )

    @display(description="Set")
    def set_cell(self, row: Any) -> str:
        return values_text(type(self).values(row))


@admin.register(PlacementLimit)
class PlacementLimitAdmin(DecidedAdmin):
    """Placement limits of tenants."""

    list_display = ("__str__", "set_cell")
    about = (
        "Limits for all tenants and for single tenants. Defaults: 1 to 1024 "
        "shards of 128 KiB/s, windows of 17 and 19 minutes. Changes apply from the next rules on."
    )
    empty_list = "No limits set: the defaults apply."
    operator_actions = LIMIT_ACTIONS
    subject = PlacementChange.Subject.LIMITS
    values = staticmethod(limit_values)

    def heading(self, row: PlacementLimit) -> str:
        return f"Placement limits of {row}"

    def sections(self, row: PlacementLimit) -> Sequence[Section]:
        found = [
            (name.replace("_", " ").capitalize(), _value(name, value)) for name, value in limit_values(row).items()
        ]
        return [Facts(title="Limits", rows=found), self.history(row)]


@admin.register(PlacementOverride)
class PlacementOverrideAdmin(DecidedAdmin):
    """Overrides of single datasets."""

    list_display = ("dataset_cell", "set_cell")
    list_filter = (TenantNameFilter, DatasetFilter)
    about = "Datasets whose number of shards is set, or that are pinned to shards, regardless of their load."
    empty_list = "No dataset is overridden or pinned."
    operator_actions = OVERRIDE_ACTIONS
    subject = PlacementChange.Subject.OVERRIDE
    values = staticmethod(override_values)

    def heading(self, row: PlacementOverride) -> str:
        return f"Override of {row}"

    def sections(self, row: PlacementOverride) -> Sequence[Section]:
        place = {"tenant": row.tenant, "dataset": row.dataset}
        where = show.link(reverse("placement-page", query=place), "show")
        rows = [
            (name.replace("_", " ").capitalize(), _value(name, value)) for name, value in override_values(row).items()
        ]
        return [Facts(title="Override", rows=[*rows, ("On the ring", where)]), self.history(row)]

    @display(description="Dataset")
    def dataset_cell(self, row: PlacementOverride) -> SafeString:
        return show.note(show.name(row.dataset or "(no name)"), row.tenant)


@admin.register(PlacementChange)
class PlacementChangeAdmin(ReadOnlyAdmin):
    """Operators' changes of placement, newest first."""

    list_display = ("__str__", "at", "actor", "before_cell", "after_cell", "why")
    list_filter = (TenantNameFilter, DatasetFilter)
    about = "History of limits and overrides with actor and reason, including removed ones."
    empty_list = "No limits or overrides were set."

    def sections(self, row: PlacementChange) -> Sequence[Section]:
        return [
            Facts(
                title="Decision",
                rows=[
                    ("When (UTC)", self.at(row)),
                    ("Who", row.actor),
                    ("Why", row.why or show.NOTHING),
                    ("Before", values_text(row.before)),
                    ("After", values_text(row.after)),
                ],
            )
        ]

    @display(description="When (UTC)")
    def at(self, row: PlacementChange) -> str:
        return show.moment_text(row.at_ms)

    @display(description="Before")
    def before_cell(self, row: PlacementChange) -> str:
        return values_text(row.before)

    @display(description="After")
    def after_cell(self, row: PlacementChange) -> str:
        return values_text(row.after)
