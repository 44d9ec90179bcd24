"""One round of the sensor: evaluate every branch with counted writes, save the decisions, begin compactions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db.models import Count, Q

from engine.core.errors import LithifyError
from engine.lanes.catalog.plan.sensor import Decision, Held, decide
from webadmin.base.actions.action import ActionContext
from webadmin.base.database.dialect import clock_ms
from webadmin.lanes.catalog.branch_loads import WatchedBranch, budgets_of, watched_branches
from webadmin.lanes.catalog.compaction_policies import policies_of, sensor_policy
from webadmin.lanes.catalog.errors import BranchBusy
from webadmin.lanes.catalog.lane_models import REASON_MAX, BranchWatch
from webadmin.lanes.catalog.models import BranchToken, Repository, StagedEntry
from webadmin.lanes.catalog.services.compaction.compact_branch import begin_compaction
from webadmin.lanes.catalog.services.compaction.end_compactions import ACTOR, end_abandoned, end_lost, note_failed
from webadmin.lanes.catalog.states import TokenState

log = logging.getLogger(__name__)

TOKENS_COUNTED_MAX = 50
"""Maximum number of sealed tokens whose rows are counted in one round; each is counted once."""


@dataclass(slots=True)
class SenseReport:
    """Number of evaluated branches, the compactions begun, and the branches where that failed, with the error."""

    weighed: int = 0
    begun: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    lost: int = 0
    evicted: int = 0
    abandoned: int = 0


def sense_branches() -> SenseReport:
    """End finished compactions, evaluate branches, begin compactions. An error in one branch does not stop others."""
    report = SenseReport(abandoned=end_abandoned(), lost=end_lost(), evicted=note_failed())
    count_tokens()
    watched: dict[Repository, list[WatchedBranch]] = {}
    for one in watched_branches():
        watched.setdefault(one.branch.repository, []).append(one)
    policies, budgets = policies_of(watched), budgets_of(watched)
    for repository, branches in watched.items():
        report.weighed += len(branches)
        policy = sensor_policy(policies[repository.pk], is_read_only=repository.is_read_only)
        decisions = decide([one.load for one in branches], policy, budgets[repository.pk])
        _act(branches, decisions, report)
    return report


def count_tokens() -> None:
    """Count the rows of tokens that were sealed since the last round."""
    fresh = BranchToken.objects.filter(state=TokenState.SEALED, row_count=None).order_by("pk")[:TOKENS_COUNTED_MAX]
    for token in fresh:
        rows = StagedEntry.objects.filter(token_id=token.pk)
        totals = rows.aggregate(count=Count("key"), tombstones=Count("key", filter=Q(identity=b"")))
        BranchToken.objects.filter(pk=token.pk).update(row_count=totals["count"], tombstone_count=totals["tombstones"])


def _act(branches: Sequence[WatchedBranch], decisions: Sequence[Decision], report: SenseReport) -> None:
    by_name = {one.branch.name: one for one in branches}
    for decision in decisions:
        one = by_name[decision.branch]
        _keep(one, decision)
        context = _context_of(one, decision)
        if context is None:
            continue
        name = f"{one.branch.repository}/{one.branch.name}"
        try:
            begin_compaction(one.branch, cause=context.why, context=context, is_ordered=not decision.fires)
            report.begun.append(name)
        except BranchBusy:
            continue  # a concurrent sensor counted it
        except LithifyError as error:
            report.failed[name] = str(error)
            log.warning("compaction_not_begun branch=%s error=%s", name, error)


def _context_of(one: WatchedBranch, decision: Decision) -> ActionContext | None:
    """Return the actor and reason of a compaction to begin now: sensor, operator, or None."""
    if one.watch is not None and one.watch.ordered_by and not one.load.is_running:
        return ActionContext(actor=one.watch.ordered_by, why=one.watch.ordered_why)
    return ActionContext(actor=ACTOR, why=decision.reason) if decision.fires else None


def _keep(one: WatchedBranch, decision: Decision) -> None:
    """Save the sensor's decision if it changed."""
    signals = Decision(branch="", held=Held.FIRES, is_wanted=True, signals=decision.signals).reason
    values = {
        "is_wanted": decision.is_wanted,
        # A branch without signals is not evaluated again until something is counted on it.
        "held": "" if decision.held is Held.QUIET and not decision.signals else decision.held.value,
        "reason": signals[:REASON_MAX],
        "severity": decision.severity,
    }
    before = one.watch
    if before is not None and all(getattr(before, name) == value for name, value in values.items()):
        return
    now_ms = clock_ms()
    ready_ms = None if decision.ready_in_s is None else now_ms + round(decision.ready_in_s * 1000)
    BranchWatch.objects.update_or_create(
        branch=one.branch, defaults=values | {"ready_ms": ready_ms, "decided_ms": now_ms}
    )
