"""Stop quarantine in a place when too many recent sources are bad, and end the stop by a decision."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.schedule.isolation import RecentSources
from engine.schedule.model import JobState, ParkedKind
from webadmin.base.actions.action import ActionContext
from webadmin.schedule.isolation_stops import RECENT_MS, FoundBad, open_stop, recent_sources
from webadmin.schedule.lanes import lane_of
from webadmin.schedule.models import Job
from webadmin.schedule.operation_models import WHY_MAX, IsolationStop
from webadmin.schedule.register import NAMES_MAX, JobFilter, is_kind
from webadmin.schedule.services.operation import QUEUE_IS_FULL, OperationOutcome, operation
from webadmin.schedule.services.requeue_jobs import requeue
from webadmin.schedule.wall_times import wall_times

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionOutcome:
    """The outcome of a decision about a place: jobs requeued, sources released, and those left with the reason.

    Nothing is changed if there is no open stop.
    """

    lane: str
    place: str
    decision: IsolationStop.Decision
    is_dry_run: bool
    changed: tuple[str, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    command_indexes: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for API and admin."""
        return {
            "action": "decide_isolation",
            "lane": self.lane,
            "place": self.place,
            "decision": self.decision.value,
            "dry_run": self.is_dry_run,
            "changed": list(self.changed),
            "left": [{"job": name, "reason": reason} for name, reason in self.left],
            "commands": list(self.command_indexes),
            "notes": list(self.notes),
        }


def isolation_stop_reason(lane: str, place: str, found: Sequence[FoundBad], context: ActionContext) -> str:
    """Return why bad sources of a place may not be quarantined now, "" if they may.

    Stop quarantine there if ``found``, the sources to be quarantined, are too many beside those of the last hour.
    """
    if (stop := open_stop(lane, place)) is not None:
        return stop.reason
    sources = recent_sources(lane, place, found)
    if not sources.is_too_many:
        return ""
    if not context.is_dry_run:
        log.error("isolation_stopped %s", stop_isolation(lane, place, sources, context))
    return str(sources)


def stop_isolation(lane: str, place: str, sources: RecentSources, context: ActionContext) -> IsolationStop:
    """Stop quarantine in a place until an operator decides; return the open stop if there is one already."""
    with operation() as run:
        if (stop := open_stop(lane, place)) is not None:
            return stop
        about = {"lane": lane, "place": place, "bad": dict(sources.bad), "merged": sources.merged_count}
        run.write("stop_isolation", context, target=place or lane, detail=about)
        return IsolationStop.objects.create(
            lane=lane,
            place=place,
            at_ms=run.time.now_ms,
            command_index=run.index,
            bad_sources=sources.bad_count,
            merged_sources=sources.merged_count,
            reason=str(sources)[:WHY_MAX],
        )


def decide_isolation(
    lane: str, place: str, decision: IsolationStop.Decision, *, context: ActionContext
) -> DecisionOutcome:
    """End the stop of a place.

    ``RETRY`` requeues its evicted jobs and releases sources that were quarantined in the hour before the stop;
    ``QUARANTINE`` permits quarantine of all sources that have arrived by now, whatever their share.

    The stop ends last: an action that was interrupted, or that left something because the queue is full, can be
    repeated. Raises LaneUnknown.
    """
    lane_of(lane)
    stop = open_stop(lane, place)
    if stop is None:
        note = f"nothing is stopped in {lane} {place}".rstrip() + ": nothing to decide"
        return DecisionOutcome(lane=lane, place=place, decision=decision, is_dry_run=context.is_dry_run, notes=(note,))
    outcomes: list[OperationOutcome] = []
    notes: tuple[str, ...] = ()
    if decision is IsolationStop.Decision.RETRY:
        outcomes = _retry(stop, context)
    else:
        notes = (
            "sources that fail alone are quarantined again, one by one; those that arrive from now on are counted",
        )
    indexes = tuple(index for outcome in outcomes for index in outcome.command_indexes)
    left = tuple(left for outcome in outcomes for left in outcome.left)
    without_room = sum(reason == QUEUE_IS_FULL for _, reason in left)
    if without_room:
        notes = (f"the stop stays: {without_room} left because the queue is full; decide again when there is room",)
    elif not context.is_dry_run:
        indexes += _end(stop, decision, context)
    return DecisionOutcome(
        lane=lane,
        place=place,
        decision=decision,
        is_dry_run=context.is_dry_run,
        changed=tuple(name for outcome in outcomes for name in outcome.changed),
        left=left,
        command_indexes=indexes,
        notes=notes,
    )


def _retry(stop: IsolationStop, context: ActionContext) -> list[OperationOutcome]:
    lane, at_ms = lane_of(stop.lane), stop.at_ms
    if lane.keeps_wall_time:
        at_ms = wall_times([stop.command_index]).of(stop.at_ms, stop.command_index)
    evicted = Job.objects.filter(lane.jobs_of(stop.place), is_kind(ParkedKind.EVICTED), lane=stop.lane)
    names = list(evicted.filter(state=JobState.PARKED).order_by("id").values_list("name", flat=True))
    batches = (tuple(names[start : start + NAMES_MAX]) for start in range(0, len(names), NAMES_MAX))
    requeued = [requeue(JobFilter(names=batch), context=context) for batch in batches]
    return [*requeued, *lane.release_bad_sources(stop.place, at_ms - RECENT_MS, context)]


def _end(stop: IsolationStop, decision: IsolationStop.Decision, context: ActionContext) -> tuple[int, ...]:
    with operation() as run:
        active = IsolationStop.objects.filter(id=stop.id, ended_at_ms=None)
        if not active.exists():
            return ()
        about = {"lane": stop.lane, "place": stop.place, "decision": decision.value, "stop": stop.command_index}
        index = run.write("decide_isolation", context, target=stop.place or stop.lane, detail=about)
        active.update(
            ended_at_ms=run.time.now_ms,
            ended_wall_ms=run.time.wall_ms,
            decision=decision,
            ended_by=context.actor,
            why=context.why[:WHY_MAX],
        )
    return (index,)
