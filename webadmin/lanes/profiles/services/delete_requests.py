"""Accept delete requests: from the commit on no query returns the data, and every merge assigned later leaves it out.

A request applies to data accepted before its command, including the result of a merge that is running: the result keeps
the watermark of the moment when the merge was assigned. ``rewrite_masked`` rewrites the objects.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Count, QuerySet, Sum

from engine.core.errors import BadBlockName
from engine.formats.profile_block.container.object_names import check_tenant
from engine.formats.profile_block.selectors import InvalidSelector, parse_selector
from engine.lanes.profiles.jobs import DeleteMask
from webadmin.base.access.models import Tenant
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.deletion_models import SERVICE_MAX, WHY_MAX
from webadmin.lanes.profiles.errors import InvalidRule, TenantBusy
from webadmin.lanes.profiles.masks import concerned
from webadmin.lanes.profiles.models import Dataset, DeleteRequest, DeleteState, LegalHold
from webadmin.lanes.profiles.states import LIVE_STATES
from webadmin.schedule.lanes import lanes
from webadmin.schedule.services.operation import operation

log = logging.getLogger(__name__)

DEADLINE_HOURS = 24
DEADLINE_HOURS_MAX = 24 * 90
TIME_MAX_MS = 1 << 62
ANY_INDEX = (1 << 63) - 1
HOUR_MS = 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionTarget:
    """The data to delete: of a tenant, of one service or all, of the series that the selector matches.

    Times are ``[from_ms, until_ms)`` in unix milliseconds (None: without bound). ``deadline_hours`` bounds the
    rewriting.
    """

    tenant: str
    service: str = ""
    selector: str = ""
    from_ms: int | None = None
    until_ms: int | None = None
    deadline_hours: int = DEADLINE_HOURS

    def check(self) -> None:
        """Raise InvalidRule if the request is invalid."""
        try:
            check_tenant(self.tenant)
            parse_selector(self.selector)
        except (BadBlockName, InvalidSelector) as error:
            raise InvalidRule(str(error)) from error
        if len(self.service) > SERVICE_MAX or "\0" in self.service + self.selector:
            raise InvalidRule(f"a service has at most {SERVICE_MAX} characters, and no text has NUL")
        times = [time for time in (self.from_ms, self.until_ms) if time is not None]
        if not all(0 <= time <= TIME_MAX_MS for time in times) or times != sorted(set(times)):
            raise InvalidRule("the time ends before it starts, or starts before 1970")
        if not 1 <= self.deadline_hours <= DEADLINE_HOURS_MAX:
            raise InvalidRule(f"the deadline is 1 to {DEADLINE_HOURS_MAX} hours away")

    def mask(self, index: int = ANY_INDEX) -> DeleteMask:
        """Return the mask of the request at this command."""
        selector = self.selector if parse_selector(self.selector) else ""
        return DeleteMask(
            index=index,
            tenant=self.tenant,
            service=self.service,
            selector=selector,
            from_ms=self.from_ms,
            until_ms=self.until_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOutcome:
    """What a request hides, or would hide: datasets that contain, or could contain, such data, and their objects.

    ``request_id`` is the row, None for a dry run, whose ``kept`` lists in sentences the tenant's data other than
    profiles: no request to delete its data changes that.
    """

    is_dry_run: bool
    blocks: int
    datasets: int
    bytes: int
    request_id: int | None = None
    command_index: int | None = None
    kept: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as commands and API show it."""
        return ({"kept": list(self.kept)} if self.is_dry_run else {}) | {
            "dry_run": self.is_dry_run,
            "blocks": self.blocks,
            "datasets": self.datasets,
            "bytes": self.bytes,
            "request": self.request_id,
            "command": self.command_index,
        }


def request_deletion(wanted: DeletionTarget, *, context: ActionContext) -> DeleteOutcome:
    """Hide the data at once and have it rewritten by the deadline. Cannot be undone.

    For an equal request that is not done, that one is returned, unless data was added since. Raises InvalidRule for an
    invalid request or tenant, TenantBusy if the tenant is on hold.
    """
    wanted.check()
    _check_hold(wanted.tenant)
    if context.is_dry_run:
        kept = tuple(text for lane in lanes() for text in lane.kept_by_deletion(wanted.tenant))
        return replace(_outcome(live_concerned(wanted.mask()), is_dry_run=True), kept=kept)
    tenant = Tenant.objects.filter(name=wanted.tenant).first()
    if tenant is None:
        raise InvalidRule(f"no data of a tenant {wanted.tenant!r} has ever come")
    with operation() as run:
        _check_hold(wanted.tenant)
        mask = wanted.mask()
        if (known := _equal_request(mask)) is not None and not live_concerned(mask).filter(
            masks_applied__gte=known.command_index
        ).exists():
            return _outcome(live_concerned(mask), request=known)
        about = {name: value for name, value in mask.to_json().items() if name != "index"}
        index = run.write("request_deletion", context, target=wanted.tenant, detail=about)
        found = _outcome(live_concerned(wanted.mask(index)))
        request = DeleteRequest.objects.create(
            tenant=tenant,
            service=mask.service,
            selector=mask.selector,
            from_ms=mask.from_ms,
            until_ms=mask.until_ms,
            command_index=index,
            requested_at_ms=run.time.now_ms,
            deadline_at_ms=run.time.now_ms + wanted.deadline_hours * HOUR_MS,
            hidden_blocks=found.blocks,
            hidden_datasets=found.datasets,
            actor=context.actor,
            why=context.why[:WHY_MAX],
        )
        outcome = _outcome(live_concerned(wanted.mask(index)), request=request)
    log.info("deletion_requested command=%d tenant=%s blocks=%d", index, wanted.tenant, outcome.blocks)
    return outcome


def reopen_requests(tenants: Collection[str]) -> None:
    """Reopen requests of these tenants: an import added objects that may still contain the data.

    Call it in the transaction that imports.
    """
    done = DeleteRequest.objects.filter(state=DeleteState.DONE, tenant__name__in=tenants)
    done.update(state=DeleteState.HIDDEN)


def live_concerned(mask: DeleteMask) -> QuerySet[Dataset]:
    """Return the live datasets to which a mask applies."""
    return concerned(mask).filter(block__state__in=LIVE_STATES)


def _check_hold(tenant: str) -> None:
    if LegalHold.objects.filter(tenant=tenant, ended_at=None).exists():
        raise TenantBusy(f"tenant {tenant!r} is on legal hold: nothing of it may be removed")


def _equal_request(mask: DeleteMask) -> DeleteRequest | None:
    same = DeleteRequest.objects.filter(state=DeleteState.HIDDEN, tenant__name=mask.tenant, service=mask.service)
    same = same.filter(selector=mask.selector, from_ms=mask.from_ms, until_ms=mask.until_ms)
    return same.order_by("-command_index").first()


def _outcome(
    datasets: QuerySet[Dataset], *, request: DeleteRequest | None = None, is_dry_run: bool = False
) -> DeleteOutcome:
    sums = datasets.aggregate(blocks=Count("block_id", distinct=True), count=Count("id"), bytes=Sum("size_bytes"))
    return DeleteOutcome(
        is_dry_run=is_dry_run,
        blocks=sums["blocks"],
        datasets=sums["count"],
        bytes=sums["bytes"] or 0,
        request_id=request.id if request else None,
        command_index=request.command_index if request else None,
    )
