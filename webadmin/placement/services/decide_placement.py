"""Operators' actions on placement: limits for everybody and for tenants, overrides and pins of single datasets.

A change takes effect with the next round of the rules (at most 15 s). Each writes an entry in the audit log and a row
of history with the previous value; without a change nothing is written, so actions are idempotent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction

from engine.core.errors import BadBlockName
from engine.formats.profile_block.container.object_names import check_tenant
from engine.placement.build_rules import PlacementSettings
from engine.placement.errors import LimitsRefused
from engine.placement.model import DatasetOverride, LoadBalancing
from webadmin.base.access.services import record_audit
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.placement.models import PlacementChange, PlacementLimit, PlacementOverride, RulesHead
from webadmin.placement.operator_settings import (
    ALL_TENANTS,
    LIMIT_NAMES,
    OVERRIDE_NAMES,
    limit_values,
    operator_settings,
    override_of,
    override_values,
    settings_of,
)
from webadmin.placement.rule_models import DATASET_NAME_MAX, WHY_MAX
from webadmin.placement.services.forecast_placement import MovementForecast, forecast_settings
from webadmin.placement.services.instances import current_ring

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome of a change, or of its dry run; None means no value of its own.

    ``movement`` is, for a dry run, what would move.
    """

    subject: PlacementChange.Subject
    tenant: str
    dataset: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    is_dry_run: bool
    movement: MovementForecast | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for API and commands."""
        place = {"tenant": self.tenant, "dataset": self.dataset}
        return place | {
            "changed": self.before != self.after,
            "before": self.before,
            "after": self.after,
            "dry_run": self.is_dry_run,
            "movement": self.movement.to_json() if self.movement else None,
        }


def change_limits(*, tenant: str = ALL_TENANTS, values: Values | None, context: ActionContext) -> Decision:
    """Set the given numbers and keep the others; None for a number, or for all values, removes them.

    Raises LimitsRefused unless the resulting limits are consistent, for everybody and for each tenant.
    """
    _check_place(tenant)
    _check_names(values, LIMIT_NAMES)
    if context.is_dry_run:
        return _forecast(_limits_decision(tenant, values, context))
    with transaction.atomic(durable=True):
        _hold_decisions()
        decision = _limits_decision(tenant, values, context)
        if decision.before != decision.after:
            rows = PlacementLimit.objects.filter(tenant=tenant)
            rows.delete()
            if decision.after is not None:
                PlacementLimit.objects.create(tenant=tenant, **decision.after)
            _record(decision, context, "change_placement_limits", tenant or "everybody")
    return decision


def change_override(*, tenant: str, dataset: str, values: Values | None, context: ActionContext) -> Decision:
    """Set the given values for one dataset and keep the rest; None removes a value. ``shards`` pins it.

    Raises LimitsRefused, and PinRefused for shards that the ring does not have.
    """
    _check_place(tenant, dataset)
    if not tenant:
        raise LimitsRefused("an override is for one dataset of one tenant: name the tenant")
    _check_names(values, OVERRIDE_NAMES)
    if context.is_dry_run:
        return _forecast(_override_decision(tenant, dataset, values, context))
    with transaction.atomic(durable=True):
        _hold_decisions()
        decision = _override_decision(tenant, dataset, values, context)
        if decision.before != decision.after:
            PlacementOverride.objects.filter(tenant=tenant, dataset=dataset).delete()
            if decision.after is not None:
                PlacementOverride.objects.create(tenant=tenant, dataset=dataset, **decision.after)
            _record(decision, context, "change_placement_override", f"{tenant}/{dataset}")
    return decision


def _check_place(tenant: str, dataset: str = "") -> None:
    if tenant:
        try:
            check_tenant(tenant)
        except BadBlockName as error:
            raise LimitsRefused(str(error)) from error
    if len(dataset) > DATASET_NAME_MAX or "\0" in dataset:
        raise LimitsRefused(f"a dataset has a name of at most {DATASET_NAME_MAX} characters without NUL")


def _check_names(values: Values | None, known: tuple[str, ...]) -> None:
    unknown = sorted(set(values or ()) - set(known))
    if unknown:
        raise LimitsRefused(f"{', '.join(unknown)}: the names are {', '.join(known)}")


def _hold_decisions() -> None:
    """Wait for other changes and rounds, which take milliseconds."""
    RulesHead.objects.get_or_create(id=1)
    dialect.locked(RulesHead.objects.filter(id=1)).only("id").get()


def _limits_decision(tenant: str, values: Values | None, context: ActionContext) -> Decision:
    row = PlacementLimit.objects.filter(tenant=tenant).first()
    before = limit_values(row) if row else None
    decision = _decision(PlacementChange.Subject.LIMITS, tenant, "", before, values, context)
    settings = _settings_after(decision)
    for limits in (settings.default_limits, *settings.tenants.values()):
        limits.check()
    return decision


def _override_decision(tenant: str, dataset: str, values: Values | None, context: ActionContext) -> Decision:
    row = PlacementOverride.objects.filter(tenant=tenant, dataset=dataset).first()
    before = override_values(row) if row else None
    decision = _decision(PlacementChange.Subject.OVERRIDE, tenant, dataset, before, values, context)
    override: DatasetOverride = override_of(decision.after or {})
    override.check(current_ring().shards)
    return decision


def _decision(
    subject: PlacementChange.Subject,
    tenant: str,
    dataset: str,
    before: dict[str, Any] | None,
    values: Values | None,
    context: ActionContext,
) -> Decision:
    merged = {} if values is None else (before or {}) | dict(values)
    after = {name: _plain(name, value) for name, value in merged.items() if value is not None and value != []}
    return Decision(
        subject=subject,
        tenant=tenant,
        dataset=dataset,
        before=before,
        after=after or None,
        is_dry_run=context.is_dry_run,
    )


def _plain(name: str, value: Any) -> Any:
    """Return a value as rows and JSON store it."""
    if name == "load_balancing":
        try:
            return int(LoadBalancing[value.upper()]) if isinstance(value, str) else int(LoadBalancing(value))
        except (KeyError, ValueError) as error:
            words = ", ".join(one.name.lower() for one in LoadBalancing)
            raise LimitsRefused(f"load balancing {value!r}: it is one of {words}") from error
    if name == "shards":
        return sorted(value)
    if name.endswith("_window_s"):
        return float(value)
    return value


def _settings_after(decision: Decision) -> PlacementSettings:
    """Return the settings as they would be with the change."""
    limits = {row.tenant: row for row in PlacementLimit.objects.all()}
    overrides = {(row.tenant, row.dataset): row for row in PlacementOverride.objects.all()}
    if decision.subject is PlacementChange.Subject.LIMITS:
        limits[decision.tenant] = PlacementLimit(tenant=decision.tenant, **(decision.after or {}))
    else:
        key = (decision.tenant, decision.dataset)
        overrides.pop(key, None)
        if decision.after:
            overrides[key] = PlacementOverride(tenant=key[0], dataset=key[1], **decision.after)
    return settings_of(limits.values(), overrides.values())


def _forecast(decision: Decision) -> Decision:
    return replace(decision, movement=forecast_settings(operator_settings(), _settings_after(decision)))


def _record(decision: Decision, context: ActionContext, action: str, target: str) -> None:
    about = {"before": decision.before, "after": decision.after, "why": context.why[:WHY_MAX]}
    record_audit(actor=context.actor, action=action, target=target[:250], detail=about)
    PlacementChange.objects.create(
        subject=decision.subject,
        at_ms=dialect.clock_ms(),
        actor=context.actor[:150],
        why=context.why[:WHY_MAX],
        tenant=decision.tenant,
        dataset=decision.dataset,
        before=decision.before,
        after=decision.after,
    )
