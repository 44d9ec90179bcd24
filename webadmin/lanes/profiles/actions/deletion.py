"""Operators' actions on retention, legal holds and delete requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.utils import timezone
from rest_framework import serializers

from engine.lanes.profiles.plan.retention import DAY_MS
from webadmin.adminkit.formatting import counted, size_text
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.base.actions.action import ActionContext, OperatorAction, Values
from webadmin.base.actions.fields import MomentMs, Number, Switch, Text
from webadmin.lanes.profiles.deletion_models import KEEP_DAYS_MAX, SELECTOR_MAX, SERVICE_MAX
from webadmin.lanes.profiles.services.delete_requests import (
    DEADLINE_HOURS,
    DEADLINE_HOURS_MAX,
    DeleteOutcome,
    DeletionTarget,
    request_deletion,
)
from webadmin.lanes.profiles.services.retain import ALL_TENANTS, RetentionReport, apply_retention, retention_policy
from webadmin.lanes.profiles.services.retention_rules import RuleOutcome, lift_hold, place_hold, set_retention


class ReportSerializer(serializers.Serializer[Any]):
    """What was done, or would be in a dry run."""

    dry_run = serializers.BooleanField()


class DeleteReportSerializer(ReportSerializer):
    """What is hidden, or would be; a dry run names what the tenant has beside profiles."""

    kept = serializers.ListField(child=serializers.CharField(), required=False, help_text="what is not touched")


TENANT = Text("tenant", "Tenant", "Owner of the data.", length_max=TENANT_NAME_MAX, is_required=True)
RULE_TENANT = replace(TENANT, about="Empty: all tenants without their own rule.", is_required=False)
LIFT = Switch("lift", "Lift", "End the hold instead of placing one.")


def _rule_described(rules: Sequence[RuleOutcome], is_dry_run: bool) -> dict[str, Any]:
    return _rule_facts(rules[0]) | ({"notes": _effect(rules[0])} if is_dry_run else {})


def _removed(rules: Sequence[RuleOutcome], is_dry_run: bool) -> dict[str, Any]:
    notes = [note for rule in rules for note in _effect(rule)] if is_dry_run else []
    return {"changed": [rule.tenant or "all tenants" for rule in rules], "notes": notes}


def _rule_facts(rule: RuleOutcome) -> dict[str, Any]:
    return {
        "tenant": rule.tenant or "all tenants without their own rule",
        "before": _days(rule.tenant, rule.before),
        "after": _days(rule.tenant, rule.after),
        "changed": rule.before != rule.after,
    }


def _days(tenant: str, keep_days: int | None) -> str:
    if keep_days is None:
        return "rule for all tenants" if tenant else "no rule: 31 days"
    return counted(keep_days, "day") if keep_days else "indefinitely"


def _effect(rule: RuleOutcome) -> list[str]:
    """Return what the next run of retention would drop under the present and the changed rules."""
    now = retention_policy()
    tenants = {tenant: keep_ms for tenant, keep_ms in now.tenants.items() if tenant != rule.tenant}
    if rule.tenant == ALL_TENANTS:
        default_ms = type(now)().default_ms if rule.after is None else rule.after * DAY_MS
        then = replace(now, default_ms=default_ms)
    else:
        own = {} if rule.after is None else {rule.tenant: rule.after * DAY_MS}
        then = replace(now, tenants=tenants | own)
    dry = ActionContext(actor="", is_dry_run=True)
    return [
        f"Under the current rule the next run drops {_amount(apply_retention(context=dry, policy=now))}.",
        f"Under the new rule it would drop {_amount(apply_retention(context=dry, policy=then))}.",
    ]


def _amount(report: RetentionReport) -> str:
    blocks = sum(part.blocks for part in report.expired)
    if not blocks:
        return "nothing"
    more = f", and {counted(report.left_for_later, 'more part')} later" if report.left_for_later else ""
    return f"{counted(blocks, 'block')} ({size_text(sum(part.bytes for part in report.expired))}){more}"


def _change_hold(values: Values, context: ActionContext) -> dict[str, Any]:
    tenant, lift = values["tenant"], values.get("lift", False)
    if lift:
        changed = lift_hold(tenant=tenant, at=timezone.now(), context=context)
        note = "Retention resumes with its next run and drops expired data."
    else:
        changed = place_hold(tenant=tenant, context=context)
        note = "During the hold neither retention nor delete requests remove data of the tenant."
    notes = [note] if context.is_dry_run and changed else []
    return {"tenant": tenant, "changed": changed, "dry_run": context.is_dry_run, "notes": notes}


def _lifted(outcomes: Sequence[dict[str, Any]], is_dry_run: bool) -> dict[str, Any]:
    notes = list(dict.fromkeys(note for one in outcomes for note in one["notes"]))
    return {"changed": [one["tenant"] for one in outcomes if one["changed"]]} | ({"notes": notes} if is_dry_run else {})


def _deletion_described(outcomes: Sequence[DeleteOutcome], is_dry_run: bool) -> dict[str, Any]:
    [outcome] = outcomes
    facts = {"blocks": outcome.blocks, "datasets": outcome.datasets, "bytes": outcome.bytes}
    if not is_dry_run:
        return facts | {"command": outcome.command_index}
    notes = [
        "Queries stop showing this data immediately. This cannot be undone.",
        "Counts include datasets that may hold such data: series are searched only when an object is rewritten.",
    ]
    return facts | {"notes": [*notes, *outcome.kept]}


SET_RETENTION = OperatorAction(
    operation="set_retention",
    label="Set retention",
    about="Drops blocks whose data is entirely older than the limit. The preview shows what would be dropped now.",
    targets=(RULE_TENANT,),
    fields=(
        Number(
            "keep_days",
            "Days",
            "0: keep indefinitely. Empty: remove the tenant's rule.",
            high=KEEP_DAYS_MAX,
            is_required=True,
            is_nullable=True,
        ),
    ),
    apply=lambda values, context: set_retention(**values, context=context),
    outcome=ReportSerializer,
    describe=_rule_described,
)
REMOVE_RETENTION = replace(
    SET_RETENTION,
    name="remove",
    label="Remove the rule",
    about="Removes a rule. The rule for all tenants then applies; without that, data is kept for 31 days.",
    fields=(),
    of_rows=lambda rows: [{"tenant": row.tenant, "keep_days": None} for row in rows],
    describe=_removed,
)
APPLY_RETENTION = OperatorAction(
    name="run-retention",
    operation="apply_retention",
    label="Run retention now",
    about="Drops expired data now instead of with the next run. The preview lists it.",
    apply=lambda values, context: apply_retention(context=context),
    outcome=ReportSerializer,
)
CHANGE_HOLD = OperatorAction(
    name="place-hold",
    operation="change_hold",
    label="Place a hold",
    about="Keeps all data of a tenant regardless of retention. Not allowed during a delete request.",
    targets=(replace(TENANT, about="No data of this tenant is removed during the hold."),),
    fields=(LIFT,),
    apply=_change_hold,
    outcome=ReportSerializer,
    may_conflict=True,
)
PLACE_HOLD = replace(CHANGE_HOLD, fields=())
LIFT_HOLD = replace(
    CHANGE_HOLD,
    name="lift-hold",
    label="Lift the hold",
    about="Ends the hold: retention and delete requests remove data of the tenant again.",
    fields=(),
    of_rows=lambda rows: [{"tenant": row.tenant, "lift": True} for row in rows],
    fits=lambda row: row.ended_at is None,
    describe=_lifted,
)
REQUEST_DELETION = OperatorAction(
    operation="request_deletion",
    label="Delete data",
    about="Hides profiles of a tenant from queries immediately and removes them from all objects by a deadline. "
    "Tables, Prometheus blocks and catalog repositories of the tenant are not changed: the preview names them.",
    targets=(
        TENANT,
        Text("service", "Service", "Empty: every service.", length_max=SERVICE_MAX),
        Text("selector", "Series", 'For example {pod="a-1"}. Empty: all series.', length_max=SELECTOR_MAX),
        MomentMs("from_ms", "From", "Time of the data in UTC, included. Empty: without bound.", input_name="from_time"),
        MomentMs(
            "until_ms", "Until", "Time of the data in UTC, not included. Empty: without bound.", input_name="until_time"
        ),
    ),
    fields=(
        Number(
            "deadline_hours",
            "Deadline (hours)",
            "Time by which no object contains the data. Queries hide it immediately.",
            low=1,
            high=DEADLINE_HOURS_MAX,
            default=DEADLINE_HOURS,
        ),
    ),
    apply=lambda values, context: request_deletion(DeletionTarget(**values), context=context),
    outcome=DeleteReportSerializer,
    may_conflict=True,
    describe=_deletion_described,
)

RETENTION_ACTIONS = (SET_RETENTION, APPLY_RETENTION, REMOVE_RETENTION)
HOLD_ACTIONS = (PLACE_HOLD, LIFT_HOLD)
