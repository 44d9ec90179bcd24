"""Change a level policy: the default, or that of one tenant, from the next poll on.

A dry run makes the change, plans with it, and rolls back, so that it shows what polls would do. The history is the
audit log: every change is recorded with the numbers before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from engine.core.errors import BadBlockName
from engine.formats.profile_block.container.object_names import check_tenant
from engine.lanes.profiles.plan.policy_rules import POLICY_RULES, check_policy
from engine.schedule.errors import PolicyRefused
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.lanes.profiles.level_models import LevelPolicy, LevelQueue
from webadmin.lanes.profiles.planning.level_policies import ALL_TENANTS, LevelPolicies
from webadmin.lanes.profiles.planning.level_queues import resettle_queues
from webadmin.schedule.models import Command
from webadmin.schedule.polls.dry_run import dry_poll
from webadmin.schedule.services.operation import operation

PREVIEW_JOBS = 64
"""Maximum number of jobs that a preview plans with the old numbers, and with the new ones."""
PREVIEW_QUEUES = 1000
"""Maximum number of queues that a preview recomputes, which bounds how long it holds locks."""
QUEUES_PER_COMMIT = 200
CHANGED_LATELY = timedelta(minutes=2)
"""Longer than any poll or registration of blocks, which may have read the old numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOutcome:
    """The outcome of a change. ``before`` and ``after`` are the numbers in force; None: no row of its own.

    ``queues`` and ``blocks`` are under the policy. ``jobs_before`` and ``jobs_after`` are, in a dry run, the jobs that
    a poll would plan of them now, with the old numbers and with the new ones. ``command_index`` is None for a dry run
    and if nothing was changed.
    """

    lane: str
    tenant: str
    level: int
    before: dict[str, int] | None
    after: dict[str, int] | None
    queues: int
    blocks: int
    is_dry_run: bool
    jobs_before: tuple[dict[str, Any], ...] = ()
    jobs_after: tuple[dict[str, Any], ...] = ()
    command_index: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as API and commands show it."""
        return {
            "lane": self.lane,
            "tenant": self.tenant,
            "level": self.level,
            "before": self.before,
            "after": self.after,
            "queues": self.queues,
            "blocks": self.blocks,
            "dry_run": self.is_dry_run,
            "jobs_before": list(self.jobs_before),
            "jobs_after": list(self.jobs_after),
            "command": self.command_index,
        }


def change_level_policy(
    *, lane: str, level: int, tenant: str = ALL_TENANTS, values: Mapping[str, int] | None, context: ActionContext
) -> PolicyOutcome:
    """Set the given numbers, keeping the others; ``values`` None deletes a tenant's row.

    A tenant's first row starts from the default. Raises PolicyRefused.
    """
    if tenant:
        try:
            check_tenant(tenant)
        except BadBlockName as error:
            raise PolicyRefused(str(error)) from error
    if context.is_dry_run:
        return _preview(lane, level, tenant, values)
    with operation() as run:
        outcome = _outcome(lane, level, tenant, values)
        if outcome.before == outcome.after:
            return outcome
        about = {key: outcome.to_json()[key] for key in ("lane", "tenant", "level", "before", "after")}
        target = f"{lane} level {level} {tenant}".rstrip()
        index = run.write("change_level_policy", context, target=target, detail=about)
        _write(outcome)
    _resettle(_queues(lane, level, tenant))
    return replace(outcome, command_index=index)


def settle_after_changes() -> int:
    """Recompute the ready times of queues whose policy changed recently; return how many there were.

    A concurrent transaction that had read the old numbers may have written the old time after the change had settled.
    """
    since = datetime.fromtimestamp(dialect.clock_ms() / 1000, UTC) - CHANGED_LATELY
    entries = Command.objects.filter(kind=Command.Kind.OPERATE, wall_time__gte=since)
    changes = entries.filter(change_set__action="change_level_policy").values_list("change_set", flat=True)
    places = {(change["lane"], change["level"], change["tenant"]) for change in changes}
    return sum(_resettle(_queues(*place)) for place in sorted(places))


def policy_numbers(row: LevelPolicy) -> dict[str, int]:
    """Return a policy's numbers by name."""
    return {name: getattr(row, name) for name in POLICY_RULES}


def _outcome(
    lane: str, level: int, tenant: str, values: Mapping[str, int] | None, *, is_dry_run: bool = False
) -> PolicyOutcome:
    rows = {row.tenant: row for row in LevelPolicy.objects.filter(lane=lane, level=level, tenant__in={"", tenant})}
    if ALL_TENANTS not in rows:
        raise PolicyRefused(f"lane {lane!r} merges nothing of level {level}")
    if values is None and tenant == ALL_TENANTS:
        raise PolicyRefused("the default policy cannot be removed: name a tenant, or set other numbers")
    own = policy_numbers(rows[tenant]) if tenant in rows else None
    after = None
    if values is not None:
        after = (own or policy_numbers(rows[ALL_TENANTS])) | dict(values)
        check_policy(after)
    queues = _queues(lane, level, tenant)
    sums = queues.values_list("block_count", flat=True)
    return PolicyOutcome(
        lane=lane,
        tenant=tenant,
        level=level,
        before=own,
        after=after,
        queues=len(sums),
        blocks=sum(sums),
        is_dry_run=is_dry_run,
    )


def _preview(lane: str, level: int, tenant: str, values: Mapping[str, int] | None) -> PolicyOutcome:
    """Make the change, plan with it, and roll back."""
    outcome = _outcome(lane, level, tenant, values, is_dry_run=True)
    queues = _queues(lane, level, tenant)
    meant = set(queues.values_list("tenant", "shard"))

    def planned() -> tuple[dict[str, Any], ...]:
        created = (creation.plan for creation in dry_poll(capacity=PREVIEW_JOBS).created)
        return tuple(
            p.to_json() for p in created if (p.lane, p.level) == (lane, level) and (p.tenant, p.shard) in meant
        )

    before = planned()
    with transaction.atomic():
        _write(outcome)
        resettle_queues(
            queues.filter(id__in=list(queues.values_list("id", flat=True)[:PREVIEW_QUEUES])), LevelPolicies()
        )
        after = planned()
        transaction.set_rollback(True)
    return replace(outcome, jobs_before=before, jobs_after=after)


def _write(outcome: PolicyOutcome) -> None:
    rows = LevelPolicy.objects.filter(lane=outcome.lane, level=outcome.level, tenant=outcome.tenant)
    if outcome.after is None:
        rows.delete()
    elif not rows.update(**outcome.after):
        LevelPolicy.objects.create(lane=outcome.lane, level=outcome.level, tenant=outcome.tenant, **outcome.after)


def _queues(lane: str, level: int, tenant: str) -> QuerySet[LevelQueue]:
    """Return the non-empty queues to which the row of this tenant, or the default row, applies."""
    queues = LevelQueue.objects.filter(lane=lane, level=level, block_count__gt=0).order_by("id")
    if tenant:
        return queues.filter(tenant=tenant)
    own = LevelPolicy.objects.filter(lane=lane, level=level).exclude(tenant=ALL_TENANTS)
    return queues.exclude(tenant__in=own.values("tenant"))


def _resettle(queues: QuerySet[LevelQueue]) -> int:
    """Recompute the ready times under the new numbers; in batches, and without the head of the log."""
    ids = list(queues.values_list("id", flat=True))
    for start in range(0, len(ids), QUEUES_PER_COMMIT):
        with transaction.atomic(durable=True):
            resettle_queues(LevelQueue.objects.filter(id__in=ids[start : start + QUEUES_PER_COMMIT]), LevelPolicies())
    return len(ids)
