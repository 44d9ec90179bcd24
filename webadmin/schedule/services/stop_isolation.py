"""Stops the isolation of bad blocks when too many recent blocks cannot be merged, and ends the stop by a decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.lanes.profiles.jobs import KIND as PROFILES
from engine.schedule.isolation import RecentBlocks
from engine.schedule.model import ParkedKind
from webadmin.schedule.isolation_stops import RECENT_MS, open_stop
from webadmin.schedule.operation_models import WHY_MAX, IsolationStop, Quarantine
from webadmin.schedule.register import NAMES_MAX, JobFilter
from webadmin.schedule.services.operation import Order, operation
from webadmin.schedule.services.quarantine_blocks import release
from webadmin.schedule.services.requeue_jobs import requeue


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionOutcome:
    """What a decision changed, or would change: the jobs requeued and the blocks released, and those left with the
    reason. Nothing is changed if isolation is not stopped."""

    decision: IsolationStop.Decision
    is_dry_run: bool
    changed: tuple[str, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    command_indexes: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as API and admin show it."""
        return {
            "action": "decide_isolation",
            "decision": self.decision.value,
            "dry_run": self.is_dry_run,
            "changed": list(self.changed),
            "left": [{"job": name, "reason": reason} for name, reason in self.left],
            "commands": list(self.command_indexes),
            "notes": list(self.notes),
        }


def stop_isolation(blocks: RecentBlocks, order: Order) -> IsolationStop:
    """Stop isolation until an operator decides; return the stop that is open already if there is one."""
    with operation() as run:
        if (stop := open_stop()) is not None:
            return stop
        about = {"lane": PROFILES, "bad": dict(blocks.bad), "merged": blocks.merged_count}
        run.write("stop_isolation", order, target=PROFILES, detail=about)
        return IsolationStop.objects.create(
            lane=PROFILES,
            at_ms=run.time.now_ms,
            command_index=run.index,
            bad_blocks=blocks.bad_count,
            merged_blocks=blocks.merged_count,
            reason=str(blocks)[:WHY_MAX],
        )


def decide_isolation(decision: IsolationStop.Decision, *, order: Order) -> DecisionOutcome:
    """End the stop. ``RETRY`` requeues every evicted job of profiles and releases the blocks that were quarantined in
    the hour before the stop; ``QUARANTINE`` lets isolation go on, whatever the share of bad blocks, for all blocks that
    have arrived by now."""
    stop = open_stop()
    if stop is None:
        note = "isolation is not stopped: nothing to decide"
        return DecisionOutcome(decision=decision, is_dry_run=order.is_dry_run, notes=(note,))
    indexes: tuple[int, ...] = ()
    if not order.is_dry_run:
        with operation() as run:
            lasting = IsolationStop.objects.filter(id=stop.id, ended_at_ms=None)
            if lasting.exists():
                about = {"lane": stop.lane, "decision": decision.value, "stop": stop.command_index}
                indexes = (run.write("decide_isolation", order, target=stop.lane, detail=about),)
                lasting.update(
                    ended_at_ms=run.time.now_ms, decision=decision, ended_by=order.actor, why=order.why[:WHY_MAX]
                )
    if decision is IsolationStop.Decision.QUARANTINE:
        note = "blocks that fail alone are quarantined again, one by one; blocks that arrive from now on are counted"
        return DecisionOutcome(decision=decision, is_dry_run=order.is_dry_run, command_indexes=indexes, notes=(note,))
    return _retry(stop, order, indexes)


def _retry(stop: IsolationStop, order: Order, indexes: tuple[int, ...]) -> DecisionOutcome:
    outcomes = [requeue(JobFilter(lane=stop.lane, kind=ParkedKind.EVICTED), order=order)]
    held = Quarantine.objects.filter(job__lane=stop.lane, released_at_ms=None, at_ms__gte=stop.at_ms - RECENT_MS)
    if blocks := list(held.order_by("id").values_list("block__ulid", flat=True)[:NAMES_MAX]):
        outcomes.append(release(blocks, order=order))
    return DecisionOutcome(
        decision=IsolationStop.Decision.RETRY,
        is_dry_run=order.is_dry_run,
        changed=tuple(name for outcome in outcomes for name in outcome.changed),
        left=tuple(left for outcome in outcomes for left in outcome.left),
        command_indexes=indexes + tuple(index for outcome in outcomes for index in outcome.command_indexes),
    )
