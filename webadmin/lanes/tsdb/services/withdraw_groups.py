"""Withdraw finished groups whose results cannot be published: their sources are live and planned again.

Used for a result whose files are missing, whose ``meta.json`` in the bucket has other content, or which is a partition
of a group in a bucket that no longer allows partitions: it would block all later outbox steps. Sources that are already
marked are never restored.
"""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import F

from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.models import REASON_MAX, Block, BucketTenant, Group, OutboxStep
from webadmin.lanes.tsdb.states import BlockState, GroupState, StepKind
from webadmin.schedule.services.operation import OperationOutcome, operation

WHY = "an operator withdrew its result"


def withdraw_groups(ids: Collection[int], *, context: ActionContext) -> OperationOutcome:
    """Withdraw the results of these groups; groups that cannot be withdrawn are skipped with the reason."""
    if context.is_dry_run:
        fit, left = _sorted_out(ids)
        return OperationOutcome(action="withdraw_groups", is_dry_run=True, changed=_names(fit), left=left)
    with operation() as run:
        fit, left = _sorted_out(ids)
        if not fit:
            return OperationOutcome(action="withdraw_groups", is_dry_run=False, left=left)
        run.write("withdraw_groups", context, target=f"{len(fit)} groups", detail={"groups": [one.id for one in fit]})
        _withdraw(fit, f"{WHY}: {context.why}")
    return OperationOutcome(
        action="withdraw_groups", is_dry_run=False, changed=_names(fit), left=left, command_indexes=(run.index,)
    )


def withdraw_cut_groups(tenant: BucketTenant, *, context: ActionContext) -> None:
    """Withdraw split groups that are done and not completely published: their sources are not marked yet."""
    parts = OutboxStep.objects.filter(tenant=tenant, kind=StepKind.WRITE_META, done_at_ms=None, block__partitions__gt=1)
    unpublished = Group.objects.filter(
        tenant=tenant, state=GroupState.DONE, partitions__gt=1, parts__result__in=parts.values("block_id")
    ).distinct()
    if not unpublished.exists():
        return
    with operation() as run:
        if groups := list(unpublished):
            detail = {"groups": [one.id for one in groups]}
            run.write("withdraw_groups", context, target=f"{len(groups)} groups", detail=detail)
            _withdraw(groups, context.why)


def _names(groups: Collection[Group]) -> tuple[str, ...]:
    return tuple(str(group) for group in groups)


def _sorted_out(ids: Collection[int]) -> tuple[list[Group], tuple[tuple[str, str], ...]]:
    """Return the groups that can be withdrawn, and the others with the reason."""
    groups = Group.objects.filter(id__in=ids).in_bulk()
    fit, left = [], [(f"group {number}", "there is none") for number in sorted(set(ids) - groups.keys())]
    for group in groups.values():
        failing = OutboxStep.objects.filter(
            block__part__group=group, kind=StepKind.WRITE_META, done_at_ms=None, attempts__gt=0
        )
        if group.state != GroupState.DONE or not failing.exists():
            left.append((str(group), "the bucket has not refused its result"))
        elif Block.objects.filter(group=group).exclude(state=BlockState.SUPERSEDED).exists():
            left.append((str(group), "sources of it are marked for deletion already"))
        else:
            fit.append(group)
    return fit, tuple(left)


def _withdraw(groups: Collection[Group], why: str) -> None:
    """End the open outbox steps of these groups; already visible results become superseded like their sources."""
    now_ms = dialect.clock_ms()
    why = why[:REASON_MAX]
    results, sources = Block.objects.filter(part__group__in=groups), Block.objects.filter(group__in=groups)
    for blocks in (results, sources):
        OutboxStep.objects.filter(block__in=blocks, done_at_ms=None).delete()
    visible = list(results.exclude(visible_at_ms=None).exclude(state=BlockState.GONE))
    shown = [block.id for block in visible]
    OutboxStep.objects.bulk_create(
        OutboxStep(
            tenant_id=block.tenant_id, block=block, kind=StepKind.MARK_DELETION, detail=why, created_at_ms=now_ms
        )
        for block in visible
    )
    hidden = list(results.exclude(id__in=shown).values_list("id", flat=True))
    Block.objects.filter(id__in=shown).update(state=BlockState.SUPERSEDED, reason=why)
    Block.objects.filter(id__in=hidden).update(state=BlockState.GONE, reason=why)
    sources.update(state=BlockState.LIVE, group=None, reason="")
    Group.objects.filter(id__in=[group.id for group in groups]).update(
        state=GroupState.DISSOLVED, finished_at_ms=now_ms, ended_because=why
    )
    tenants = {group.tenant_id for group in groups}
    BucketTenant.objects.filter(id__in=tenants).update(plan_at_ms=0, index_wanted=F("index_wanted") + 1)
