"""Stops keeping bad sources of a lane out when too many recent ones are bad, and ends the stop by a decision."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.schedule.isolation import RecentSources
from engine.schedule.model import ParkedKind
from webadmin.schedule.isolation_stops import RECENT_MS, FoundBad, open_stop, recent_sources
from webadmin.schedule.lanes import lane_of
from webadmin.schedule.operation_models import WHY_MAX, IsolationStop
from webadmin.schedule.register import JobFilter
from webadmin.schedule.services.operation import OperationOutcome, Order, operation
from webadmin.schedule.services.requeue_jobs import requeue
from webadmin.schedule.wall_times import wall_times

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionOutcome:
    """What a decision about a lane changed, or would change: the jobs requeued and the sources released, and those
    left with the reason. Nothing is changed if nothing is stopped there."""

    lane: str
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
            "lane": self.lane,
            "decision": self.decision.value,
            "dry_run": self.is_dry_run,
            "changed": list(self.changed),
            "left": [{"job": name, "reason": reason} for name, reason in self.left],
            "commands": list(self.command_indexes),
            "notes": list(self.notes),
        }


def brake(lane: str, found: Sequence[FoundBad], order: Order) -> str:
    """Return why bad sources of a lane may not be kept out now, "" if they may; stop that if ``found``, which the
    caller is about to keep out, are too many beside those of the last hour."""
    if (stop := open_stop(lane)) is not None:
        return stop.reason
    sources = recent_sources(lane, found)
    if not sources.is_too_many:
        return ""
    if not order.is_dry_run:
        log.error("isolation_stopped %s", stop_isolation(lane, sources, order))
    return str(sources)


def stop_isolation(lane: str, sources: RecentSources, order: Order) -> IsolationStop:
    """Keep no more sources of a lane out until an operator decides; return the stop that is open already if there is
    one."""
    with operation() as run:
        if (stop := open_stop(lane)) is not None:
            return stop
        about = {"lane": lane, "bad": dict(sources.bad), "merged": sources.merged_count}
        run.write("stop_isolation", order, target=lane, detail=about)
        return IsolationStop.objects.create(
            lane=lane,
            at_ms=run.time.now_ms,
            command_index=run.index,
            bad_sources=sources.bad_count,
            merged_sources=sources.merged_count,
            reason=str(sources)[:WHY_MAX],
        )


def decide_isolation(lane: str, decision: IsolationStop.Decision, *, order: Order) -> DecisionOutcome:
    """End the stop of a lane. ``RETRY`` requeues its evicted jobs and lets in what was kept out in the hour before the
    stop; ``QUARANTINE`` lets bad sources be kept out, whatever their share, of all that have arrived by now.

    The stop ends last: an order that was broken off is given again. Raises LaneUnknown.
    """
    lane_of(lane)
    stop = open_stop(lane)
    if stop is None:
        note = f"nothing is stopped in {lane}: nothing to decide"
        return DecisionOutcome(lane=lane, decision=decision, is_dry_run=order.is_dry_run, notes=(note,))
    outcomes: list[OperationOutcome] = []
    notes: tuple[str, ...] = ()
    if decision is IsolationStop.Decision.RETRY:
        outcomes = _retry(stop, order)
    else:
        notes = ("sources that fail alone are kept out again, one by one; those that arrive from now on are counted",)
    indexes = tuple(index for outcome in outcomes for index in outcome.command_indexes)
    if not order.is_dry_run:
        indexes += _end(stop, decision, order)
    return DecisionOutcome(
        lane=lane,
        decision=decision,
        is_dry_run=order.is_dry_run,
        changed=tuple(name for outcome in outcomes for name in outcome.changed),
        left=tuple(left for outcome in outcomes for left in outcome.left),
        command_indexes=indexes,
        notes=notes,
    )


def _retry(stop: IsolationStop, order: Order) -> list[OperationOutcome]:
    lane, at_ms = lane_of(stop.lane), stop.at_ms
    if lane.keeps_wall_time:
        at_ms = wall_times([stop.command_index]).of(stop.at_ms, stop.command_index)
    requeued = requeue(JobFilter(lane=stop.lane, kind=ParkedKind.EVICTED), order=order)
    return [requeued, *lane.let_in(at_ms - RECENT_MS, order)]


def _end(stop: IsolationStop, decision: IsolationStop.Decision, order: Order) -> tuple[int, ...]:
    with operation() as run:
        lasting = IsolationStop.objects.filter(id=stop.id, ended_at_ms=None)
        if not lasting.exists():
            return ()
        about = {"lane": stop.lane, "decision": decision.value, "stop": stop.command_index}
        index = run.write("decide_isolation", order, target=stop.lane, detail=about)
        lasting.update(
            ended_at_ms=run.time.now_ms,
            ended_wall_ms=run.time.wall_ms,
            decision=decision,
            ended_by=order.actor,
            why=order.why[:WHY_MAX],
        )
    return (index,)
