"""Explain tenants as a whole, and the jobs and pauses of tables and repositories."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Count, Q, QuerySet

from engine.schedule.explain import Explanation, PlaceFacts, explain_place
from engine.schedule.limits import Scope, ScopeKind
from engine.schedule.model import HOLDING_STATES, JobState
from engine.schedule.pauses import is_paused
from engine.schedule.progress import count_text
from webadmin.schedule.command_log import read_time
from webadmin.schedule.known_names import is_known_tenant
from webadmin.schedule.lanes import lanes
from webadmin.schedule.models import Job
from webadmin.schedule.pauses import paused_scopes
from webadmin.schedule.polls.polling_workers import polling_worker_count


def pauses_of(*, lane: str, tenant: str, level: int, planning: bool) -> list[str]:
    """Return, as text, the pauses in force that keep jobs of this place from being assigned (or planned)."""
    scopes = paused_scopes()
    return [
        str(scope) for scope in scopes if is_paused([scope], lane=lane, tenant=tenant, level=level, planning=planning)
    ]


def explain_tenant(name: str) -> list[Explanation]:
    """Explain the tenant of this name over all lanes; empty if there is none."""
    jobs = Job.objects.filter(tenant=name)
    if not name or not is_known_tenant(name):
        return []
    now_ms = read_time().now_ms
    queued = {lane.name: lane.queued(Scope(ScopeKind.TENANT, name), now_ms) for lane in lanes()}
    waiting = [(lane.name, one) for lane in lanes() for one in lane.waiting(name)]
    waits = [f"{count_text(one.count, one.unit)} of {one.name} ({lane})" for lane, one in waiting]
    scopes = paused_scopes(now_ms)
    covering = [str(scope) for scope in scopes if scope.covers(lane="", tenant=name, level=-1)]
    with_work = (
        {lane for lane, _ in waiting} | {lane for lane, one in queued.items() if one.count} | _lanes_with_jobs(name)
    )
    held = {scope.value: str(scope) for scope in scopes if scope.kind is ScopeKind.LANE and scope.value in with_work}
    if held and held.keys() == with_work:
        covering += held.values()
    else:
        waits += [f"an operator paused {scope}" for scope in held.values()]
    return [
        explain_place(
            f"Tenant {name}",
            place_facts(
                jobs,
                queued_blocks=sum(one.count for one in queued.values()),
                due_blocks=sum(one.due for one in queued.values()),
                waits=waits,
                paused=covering,
            ),
        )
    ]


def _lanes_with_jobs(tenant: str) -> set[str]:
    """Return the lanes in which jobs of a tenant wait, run or are parked."""
    jobs = Job.objects.filter(tenant=tenant, state__in=HOLDING_STATES).order_by()
    return set(jobs.values_list("lane", flat=True).distinct())


def place_facts(
    jobs: QuerySet[Job],
    *,
    queued_blocks: int = 0,
    due_blocks: int = 0,
    waits: Sequence[str] = (),
    excluded: Sequence[str] = (),
    paused: Sequence[str] = (),
    stuck: str = "",
) -> PlaceFacts:
    """Return the facts about a place, from its jobs."""
    counts = (
        jobs.filter(state__in=HOLDING_STATES)
        .order_by()
        .aggregate(
            running=Count("id", filter=Q(state=JobState.LEASED)),
            waiting=Count("id", filter=Q(state__in=[JobState.WAITING, JobState.BLOCKED])),
            parked=Count("id", filter=Q(state=JobState.PARKED)),
        )
    )
    return PlaceFacts(
        running_jobs=counts["running"],
        waiting_jobs=counts["waiting"],
        parked_jobs=counts["parked"],
        queued_blocks=queued_blocks,
        due_blocks=due_blocks,
        waits=waits,
        excluded=excluded,
        paused=paused,
        stuck=stuck,
        polling_workers=polling_worker_count(),
    )
