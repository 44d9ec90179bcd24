"""Explains tenants as a whole, and what tables and repositories say of their jobs and pauses."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Count, Q, QuerySet, Sum

from engine.schedule.explain import Explanation, PlaceFacts, explain_place
from engine.schedule.model import HOLDING_STATES, JobState
from engine.schedule.pauses import is_paused
from engine.schedule.progress import count_words
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.schedule.command_log import read_time
from webadmin.schedule.known_names import is_known_tenant
from webadmin.schedule.lanes import lanes
from webadmin.schedule.models import Job
from webadmin.schedule.pauses import paused_scopes
from webadmin.schedule.polling_workers import polling_worker_count


def pauses_of(*, lane: str, tenant: str, level: int, planning: bool) -> list[str]:
    """Return, in words, the pauses in force that keep jobs of this place from being assigned (or planned)."""
    scopes = paused_scopes()
    return [
        str(scope) for scope in scopes if is_paused([scope], lane=lane, tenant=tenant, level=level, planning=planning)
    ]


def explain_tenant(name: str) -> list[Explanation]:
    """Explain the tenant of this name over all lanes, if there is one."""
    jobs = Job.objects.filter(tenant=name)
    if not name or not is_known_tenant(name):
        return []
    now_ms = read_time().now_ms
    queues = LevelQueue.objects.filter(tenant=name, block_count__gt=0).aggregate(
        blocks=Sum("block_count"), due=Sum("block_count", filter=Q(ready_at_ms__lte=now_ms))
    )
    waits = [
        f"{count_words(one.count, one.unit)} of {one.name} ({lane.name})"
        for lane in lanes()
        for one in lane.waiting(name)
    ]
    covering = [str(scope) for scope in paused_scopes(now_ms) if scope.covers(lane="", tenant=name, level=-1)]
    return [
        explain_place(
            f"Tenant {name}",
            place_facts(
                jobs,
                queued_blocks=int(queues["blocks"] or 0),
                due_blocks=int(queues["due"] or 0),
                waits=waits,
                paused=covering,
            ),
        )
    ]


def place_facts(
    jobs: QuerySet[Job],
    *,
    queued_blocks: int = 0,
    due_blocks: int = 0,
    waits: Sequence[str] = (),
    paused: Sequence[str] = (),
    stuck: str = "",
) -> PlaceFacts:
    """Return what is known of a place whose jobs these are."""
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
        paused=paused,
        stuck=stuck,
        polling_workers=polling_worker_count(),
    )
