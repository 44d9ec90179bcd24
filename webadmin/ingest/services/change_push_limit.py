"""Set push limits of a tenant or of all tenants. Every value is kept as history, with actor and reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from django.db import transaction

from engine.core.errors import BadBlockName
from engine.formats.profile_block.container.object_names import check_tenant
from webadmin.base.access.services import record_audit
from webadmin.ingest.models import WHY_MAX, PushLimitChange
from webadmin.ingest.tenant_limits import (
    ALL_TENANTS,
    PushLimitName,
    PushLimitRefused,
    TenantPushLimits,
    check_push_limit,
    limits_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushLimitOutcome:
    """The value in force before and after the change, or after a dry run.

    ``changed`` is False if both are equal.
    """

    limit: str
    tenant: str
    before: int
    after: int
    dry_run: bool
    changed: bool

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as API, admin and commands show it."""
        return asdict(self)


def change_push_limit(
    *, tenant: str, name: PushLimitName, value: int | None, actor: str, why: str, is_dry_run: bool = False
) -> PushLimitOutcome:
    """Set a limit for a tenant ("": all tenants); None removes it. Raises PushLimitRefused."""
    check_push_limit(name, value)
    try:
        tenant = tenant and check_tenant(tenant)
    except BadBlockName as error:
        raise PushLimitRefused(str(error)) from error
    with transaction.atomic():
        rows = PushLimitChange.objects.filter(tenant=tenant, name=name, is_superseded=False)
        held = rows.values_list("value", flat=True).first()
        before = _limits(tenant).value(name)
        if value == held or is_dry_run:
            after = _limits(tenant, {name.value: value}).value(name)
            changed = value != held
        else:
            rows.update(is_superseded=True)
            PushLimitChange.objects.create(tenant=tenant, name=name, value=value, actor=actor, why=why[:WHY_MAX])
            after, changed = _limits(tenant).value(name), True
            detail = {"tenant": tenant, "limit": name.value, "value": value, "before": before, "why": why[:WHY_MAX]}
            record_audit(actor=actor, action="change_push_limit", target=tenant or "everybody", detail=detail)
    return PushLimitOutcome(
        limit=name.value, tenant=tenant, before=before, after=after, dry_run=is_dry_run, changed=changed
    )


def set_push_limits() -> dict[str, dict[str, int]]:
    """Return the limits that are set, by tenant ("": all tenants) and limit."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    rows = PushLimitChange.objects.filter(is_superseded=False, value__isnull=False).order_by()
    for tenant, name, value in rows.values_list("tenant", "name", "value"):
        if value is not None:
            found[tenant][name] = value
    return dict(found)


def _limits(tenant: str, changes: dict[str, int | None] | None = None) -> TenantPushLimits:
    """Return a tenant's limits in force after ``changes``; None among them removes a limit."""
    found = set_push_limits()
    of_all_tenants: Mapping[str, int | None] = found.get(ALL_TENANTS, {})
    own = {**found.get(tenant, {}), **(changes or {})}
    if tenant == ALL_TENANTS:
        of_all_tenants = own
    return limits_of(
        {name: value for name, value in own.items() if value is not None},
        {name: value for name, value in of_all_tenants.items() if value is not None},
    )
