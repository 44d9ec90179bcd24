"""The deletion actions in the admin: forms that call services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.utils import timezone

from engine.lanes.profiles.plan.retention import DAY_MS
from webadmin.adminkit.formatting import counted, epoch_ms, size_text
from webadmin.adminkit.order_fields import moment_field, number_field, text_field
from webadmin.adminkit.orders import OperatorOrder, OrderForm, Outcome
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.lanes.profiles.deletion_models import KEEP_DAYS_MAX, SELECTOR_MAX, SERVICE_MAX, LegalHold, RetentionRule
from webadmin.lanes.profiles.services.delete_requests import (
    DEADLINE_HOURS,
    DEADLINE_HOURS_MAX,
    DeleteOrder,
    DeleteOutcome,
    request_deletion,
)
from webadmin.lanes.profiles.services.retain import ALL_TENANTS, RetentionReport, apply_retention, retention_policy
from webadmin.lanes.profiles.services.retention_rules import RuleOutcome, lift_hold, place_hold, set_retention
from webadmin.schedule.services.operation import Order

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """An outcome as the action's page shows it."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as JSON."""
        return {**self.facts, **({"notes": list(self.notes)} if self.notes else {})}


class RetentionForm(OrderForm):
    """Tenant and retention period."""

    tenant = text_field("Tenant", "Empty: everybody that has no rule of their own.", TENANT_NAME_MAX)
    keep_days = number_field(
        "Days", "0 keeps it for ever. Empty takes the tenant's rule back.", low=0, high=KEEP_DAYS_MAX
    )
    field_order = ("tenant", "keep_days", "why")


class HoldForm(OrderForm):
    """Tenant of a legal hold."""

    tenant = text_field("Tenant", "Nothing of this tenant is removed while the hold lasts.", 150, required=True)
    field_order = ("tenant", "why")


class DeletionForm(OrderForm):
    """The data to delete."""

    tenant = text_field("Tenant", "Whose data.", TENANT_NAME_MAX, required=True)
    service = text_field("Service", "Empty: every service.", SERVICE_MAX)
    selector = text_field("Series", 'For example {pod="a-1"}. Empty: all of them.', SELECTOR_MAX)
    from_time = moment_field("From", "Time of the data in UTC, included. Empty: without bound.")
    until_time = moment_field("Until", "Time of the data in UTC, not included. Empty: without bound.")
    deadline_hours = number_field(
        "Deadline in hours",
        "By then no object holds the data any more; queries do not show it from now on.",
        low=1,
        high=DEADLINE_HOURS_MAX,
        initial=DEADLINE_HOURS,
        required=True,
    )
    field_order = ("tenant", "service", "selector", "from_time", "until_time", "deadline_hours", "why")


def _order(values: Values, actor: str, is_dry_run: bool) -> Order:
    return Order(actor=actor, why=values["why"], is_dry_run=is_dry_run)


def _set_retention(rows: Sequence[object], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    order = _order(values, actor, is_dry_run)
    rule = set_retention(tenant=values["tenant"], keep_days=values["keep_days"], order=order)
    return Said(facts=_rule_facts(rule), notes=_effect(rule, order) if is_dry_run else ())


def _take_back(rows: Sequence[RetentionRule], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    order = _order(values, actor, is_dry_run)
    rules = [set_retention(tenant=row.tenant, keep_days=None, order=order) for row in rows]
    notes = [note for rule in rules for note in _effect(rule, order)] if is_dry_run else []
    return Said(facts={"changed": [rule.tenant or "everybody" for rule in rules]}, notes=notes)


def _rule_facts(rule: RuleOutcome) -> dict[str, Any]:
    return {
        "tenant": rule.tenant or "everybody without a rule of their own",
        "before": _days(rule.tenant, rule.before),
        "after": _days(rule.tenant, rule.after),
        "changed": rule.before != rule.after,
    }


def _days(tenant: str, keep_days: int | None) -> str:
    if keep_days is None:
        return "no rule: as everybody's" if tenant else "no rule: 31 days"
    return counted(keep_days, "day") if keep_days else "for ever"


def _effect(rule: RuleOutcome, order: Order) -> list[str]:
    """Return what the next run of retention would drop under the present and the changed rules."""
    now = retention_policy()
    tenants = {tenant: keep_ms for tenant, keep_ms in now.tenants.items() if tenant != rule.tenant}
    if rule.tenant == ALL_TENANTS:
        default_ms = type(now)().default_ms if rule.after is None else rule.after * DAY_MS
        then = replace(now, default_ms=default_ms)
    else:
        own = {} if rule.after is None else {rule.tenant: rule.after * DAY_MS}
        then = replace(now, tenants=tenants | own)
    dry = replace(order, is_dry_run=True)
    return [
        f"As it is, the next run drops {_amount(apply_retention(order=dry, policy=now))}.",
        f"With this rule it would drop {_amount(apply_retention(order=dry, policy=then))}.",
    ]


def _amount(report: RetentionReport) -> str:
    blocks = sum(part.blocks for part in report.expired)
    if not blocks:
        return "nothing"
    more = f", and {counted(report.left_for_later, 'more part')} later" if report.left_for_later else ""
    return f"{counted(blocks, 'block')} ({size_text(sum(part.bytes for part in report.expired))}){more}"


def _run_retention(rows: Sequence[object], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    return apply_retention(order=_order(values, actor, is_dry_run))


def _hold(rows: Sequence[object], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    tenant = values["tenant"]
    changed = place_hold(tenant=tenant, order=_order(values, actor, is_dry_run))
    note = "While it lasts neither retention nor a delete request removes anything of the tenant."
    return Said(facts={"tenant": tenant, "changed": changed}, notes=[note] if is_dry_run and changed else ())


def _lift(rows: Sequence[LegalHold], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    order = _order(values, actor, is_dry_run)
    lifted = [row.tenant for row in rows if lift_hold(tenant=row.tenant, at=timezone.now(), order=order)]
    note = "Retention goes on with its next run: what is too old by then is dropped."
    return Said(facts={"changed": lifted}, notes=[note] if is_dry_run else ())


def _delete(rows: Sequence[object], values: Values, actor: str, is_dry_run: bool) -> Outcome:
    wanted = DeleteOrder(
        tenant=values["tenant"],
        service=values["service"],
        selector=values["selector"],
        from_ms=_ms(values["from_time"]),
        until_ms=_ms(values["until_time"]),
        deadline_hours=values["deadline_hours"],
    )
    outcome = request_deletion(wanted, order=_order(values, actor, is_dry_run))
    notes = [
        "Queries stop showing this data at once. It cannot be taken back.",
        "Counted are datasets that hold such data, or could: a series is looked for when an object is rewritten.",
        *outcome.kept,
    ]
    return Said(facts=_deletion_facts(outcome), notes=notes if is_dry_run else ())


def _deletion_facts(outcome: DeleteOutcome) -> dict[str, Any]:
    facts = {"blocks": outcome.blocks, "datasets": outcome.datasets, "bytes": outcome.bytes}
    return facts if outcome.is_dry_run else facts | {"command": outcome.command_index}


def _ms(at: datetime | None) -> int | None:
    return None if at is None else epoch_ms(at)


SET_RETENTION = OperatorOrder(
    name="set-retention",
    label="Set how long data is kept",
    about="Data of the tenant is dropped when all of a block is older than that. The preview says what would go now.",
    form=RetentionForm,
    give=_set_retention,
    of_rows=False,
)
RUN_RETENTION = OperatorOrder(
    name="run-retention",
    label="Run retention now",
    about="Drops what is too old by the rules, instead of waiting for the next run. The preview lists it.",
    give=_run_retention,
    of_rows=False,
)
TAKE_BACK = OperatorOrder(
    name="take-back",
    label="Take the rule back",
    about="The tenant's data is kept as long as everybody's; everybody's for 31 days.",
    give=_take_back,
)
PLACE_HOLD = OperatorOrder(
    name="place-hold",
    label="Place a hold",
    about="Keeps all data of a tenant, whatever retention says. Not while data of it is being deleted on request.",
    form=HoldForm,
    give=_hold,
    of_rows=False,
)
LIFT_HOLD = OperatorOrder(
    name="lift-hold",
    label="Lift the hold",
    about="Lets retention and delete requests remove data of the tenant again.",
    give=_lift,
    fits=lambda row: row.ended_at is None,
)
REQUEST_DELETION = OperatorOrder(
    name="request-deletion",
    label="Delete data",
    about="Hides profiles of a tenant from queries at once, and has them rewritten out of every object by a deadline. "
    "Its tables, Prometheus blocks and repositories of the catalog are not touched: the preview names them.",
    form=DeletionForm,
    give=_delete,
    of_rows=False,
)

RETENTION_ORDERS = (SET_RETENTION, RUN_RETENTION, TAKE_BACK)
HOLD_ORDERS = (PLACE_HOLD, LIFT_HOLD)
