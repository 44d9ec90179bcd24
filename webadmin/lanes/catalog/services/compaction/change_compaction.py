"""Change the compaction settings of a repository, and request the compaction of a branch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from webadmin.base.access.services import record_audit
from webadmin.base.actions.action import ActionContext
from webadmin.base.database.dialect import locked
from webadmin.lanes.catalog.compaction_policies import check_settings
from webadmin.lanes.catalog.errors import BranchBusy
from webadmin.lanes.catalog.lane_models import (
    ACTOR_MAX,
    IS_PARKED,
    REASON_MAX,
    BranchWatch,
    Compaction,
    CompactionPolicy,
)
from webadmin.lanes.catalog.models import Branch, Repository
from webadmin.lanes.catalog.services.garbage.condemned_objects import count_link
from webadmin.lanes.catalog.states import CompactionState


def change_policy(repository: Repository, settings: Mapping[str, Any], *, context: ActionContext) -> dict[str, Any]:
    """Change the given settings and return what changed. Raises CatalogRefused.

    The sensor uses them from its next round on.
    """
    checked = check_settings(settings)
    with transaction.atomic():
        list(locked(Repository.objects.filter(pk=repository.pk)))
        held = CompactionPolicy.objects.filter(repository=repository).first()
        policy = held or CompactionPolicy(repository=repository)
        different = {name: value for name, value in checked.items() if getattr(policy, name) != value}
        if not different or context.is_dry_run:
            return different
        before = {name: getattr(policy, name) for name in different}
        for name, value in different.items():
            setattr(policy, name, value)
        policy.save()
        count_link(repository.pk)  # more commits may keep their objects
        record_audit(
            actor=context.actor,
            action="catalog_change_compaction",
            target=str(repository),
            detail={"before": before, "after": different, "why": context.why},
        )
    return different


def order_compaction(branch: Branch, *, context: ActionContext) -> None:
    """Request a compaction in the next round, whatever the thresholds. Raises BranchBusy if one is under way."""
    if Compaction.objects.filter(~IS_PARKED, branch_id=branch.pk, state=CompactionState.OPEN).exists():
        raise BranchBusy(f"a compaction of {branch.name} is under way")
    if context.is_dry_run:
        return
    with transaction.atomic():
        BranchWatch.objects.update_or_create(
            branch=branch,
            defaults={"ordered_by": context.actor[:ACTOR_MAX], "ordered_why": (context.why or "ordered")[:REASON_MAX]},
        )
        record_audit(
            actor=context.actor,
            action="catalog_compact_now",
            target=f"{branch.repository}/{branch.name}",
            detail={"why": context.why},
        )
