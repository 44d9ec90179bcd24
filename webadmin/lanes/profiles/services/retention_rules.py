"""Change retention rules and legal holds. Every change is recorded in the audit log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from engine.core.errors import BadBlockName
from engine.formats.profile_block.container.object_names import check_tenant
from webadmin.base.access.services import record_audit
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.deletion_models import KEEP_DAYS_MAX, WHY_MAX
from webadmin.lanes.profiles.errors import InvalidRule, TenantBusy
from webadmin.lanes.profiles.models import DeleteRequest, DeleteState, LegalHold, RetentionRule
from webadmin.schedule.command_log import take_head


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOutcome:
    """A tenant's rule before and after; None: the default applies."""

    tenant: str
    before: int | None
    after: int | None
    is_dry_run: bool

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as commands and API show it."""
        return {"tenant": self.tenant, "before": self.before, "after": self.after, "dry_run": self.is_dry_run}


def set_retention(*, tenant: str, keep_days: int | None, context: ActionContext) -> RuleOutcome:
    """Set the retention of a tenant ("": the default) in days; 0 keeps data forever, None removes the tenant's rule.

    Setting the present value changes nothing. Raises InvalidRule.
    """
    _check_tenant(tenant)
    if keep_days is not None and not 0 <= keep_days <= KEEP_DAYS_MAX:
        raise InvalidRule(f"keep data for 1 to {KEEP_DAYS_MAX} days, or 0 to keep it indefinitely")
    with transaction.atomic():
        before = RetentionRule.objects.filter(tenant=tenant).values_list("keep_days", flat=True).first()
        outcome = RuleOutcome(tenant=tenant, before=before, after=keep_days, is_dry_run=context.is_dry_run)
        if context.is_dry_run or before == keep_days:
            return outcome
        if keep_days is None:
            RetentionRule.objects.filter(tenant=tenant).delete()
        else:
            values = {"keep_days": keep_days, "actor": context.actor, "why": context.why[:WHY_MAX]}
            RetentionRule.objects.update_or_create(tenant=tenant, defaults=values)
        detail = {"before": before, "after": keep_days, "why": context.why}
        record_audit(actor=context.actor, action="set_retention", target=tenant or "everybody", detail=detail)
    return outcome


def place_hold(*, tenant: str, context: ActionContext) -> bool:
    """Place a hold: nothing of the tenant is removed from now on. Return False if one is in force already.

    Raises InvalidRule, and TenantBusy while a delete request of the tenant is open: merges already leave its rows out,
    so that a hold could not keep them.
    """
    _check_tenant(tenant)
    if not tenant:
        raise InvalidRule("a hold is on one tenant: name it")
    with transaction.atomic(durable=True):
        take_head()  # removals of data hold it too
        if LegalHold.objects.filter(tenant=tenant, ended_at=None).exists():
            return False
        if DeleteRequest.objects.filter(tenant__name=tenant, state=DeleteState.HIDDEN).exists():
            raise TenantBusy(f"data of {tenant!r} is being deleted on request: wait for its certificate")
        if not context.is_dry_run:
            LegalHold.objects.create(tenant=tenant, actor=context.actor, why=context.why[:WHY_MAX])
            record_audit(actor=context.actor, action="place_hold", target=tenant, detail={"why": context.why})
    return True


def lift_hold(*, tenant: str, at: datetime, context: ActionContext) -> bool:
    """End the hold on a tenant; return False if there is none."""
    active = LegalHold.objects.filter(tenant=tenant, ended_at=None)
    if context.is_dry_run:
        return active.exists()
    with transaction.atomic():
        lifted = active.update(ended_at=at, ended_by=context.actor)
        if lifted:
            record_audit(actor=context.actor, action="lift_hold", target=tenant, detail={"why": context.why})
    return bool(lifted)


def _check_tenant(tenant: str) -> None:
    try:
        if tenant:
            check_tenant(tenant)
    except BadBlockName as error:
        raise InvalidRule(str(error)) from error
