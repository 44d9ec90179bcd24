"""The front page of the admin: the state of the system, the index and the schedule."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from engine.schedule.model import JobState
from webadmin.adminkit import formatting as show
from webadmin.adminkit.overview import Tile
from webadmin.adminkit.sections import Table
from webadmin.base.access.confinement import confined_tenants
from webadmin.base.access.queries import expiring_credential_count
from webadmin.base.database import dialect
from webadmin.console.front_page_notices import FrontPageFacts, front_page_notices
from webadmin.placement.models import Instance
from webadmin.progress.facts import read_standstill
from webadmin.schedule.admin import job_page
from webadmin.schedule.lanes import lanes
from webadmin.schedule.models import Command, Job, Worker
from webadmin.schedule.operator_queries import DONE_COUNTED_MAX, JobCounts, ScheduleOverview, schedule_overview

REFRESH_SECONDS = 5


def front_page(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Return the context of the front page (unfold's DASHBOARD_CALLBACK); a refresh by htmx gets the content only."""
    overview = schedule_overview()
    found = [lane.overview(overview.now_ms) for lane in lanes()]
    is_for_all = confined_tenants() is None
    is_refresh = request.headers.get("HX-Request") == "true"
    return context | {
        "title": "Overview",
        "frame": "console/bare.html" if is_refresh else "admin/base_site.html",
        "refresh_seconds": REFRESH_SECONDS,
        "notices": front_page_notices(read_standstill(), _front_page_facts(), found),
        "tiles": [*(tile for lane in found for tile in lane.tiles), *_tiles(overview)],
        "sections": [
            *(section for lane in found for section in lane.sections),
            _jobs(overview.jobs),
            *([_workers(overview)] if is_for_all else []),
        ],
        "wide_sections": [
            *(section for lane in found for section in lane.wide_sections),
            *([_commands(overview)] if is_for_all else []),
        ],
        "as_of": f"{show.moment_text(dialect.clock_ms())} UTC",
    }


def _front_page_facts() -> FrontPageFacts:
    failing = Instance.objects.filter(left_at_ms=None).exclude(store_error="")
    store_errors = list(failing.values_list("store_error", flat=True)) if confined_tenants() is None else []
    return FrontPageFacts(
        expiring_credentials=expiring_credential_count(timezone.now()),
        failing_writers=len(store_errors),
        store_error=store_errors[0] if store_errors else "",
    )


def _tiles(overview: ScheduleOverview) -> list[Tile]:
    jobs = overview.jobs
    return [
        Tile(
            title="Jobs leased",
            number=show.count_text(jobs.leased),
            more=f"{show.count_text(jobs.waiting + jobs.blocked)} waiting, {show.count_text(jobs.parked)} parked",
            address=show.list_address(Job, state=JobState.LEASED.value),
        ),
        Tile(
            title="Workers polling",
            number=show.count_text(overview.polling_worker_count),
            more=f"of {show.count_text(overview.known_worker_count)} known",
            address=show.list_address(Worker),
        ),
    ]


def _jobs(jobs: JobCounts) -> Table:
    done = f"{show.count_text(jobs.done)}{'+' if jobs.done == DONE_COUNTED_MAX else ''}"
    counts = [
        (JobState.WAITING, show.count_text(jobs.waiting)),
        (JobState.BLOCKED, show.count_text(jobs.blocked)),
        (JobState.LEASED, show.count_text(jobs.leased)),
        (JobState.PARKED, show.count_text(jobs.parked)),
        (JobState.DONE, done),
    ]
    held = f"{show.counted(jobs.held_sources, 'source')} held, {show.size_text(jobs.held_bytes)}."
    return Table(
        title="Jobs by state",
        headers=("State", "Jobs", "Meaning"),
        rows=[
            (
                show.link(show.list_address(Job, state=state.value), show.badge(state.value, job_page.TONES[state][0])),
                count,
                job_page.TONES[state][1],
            )
            for state, count in counts
            if count != "0" or state in (JobState.LEASED, JobState.DONE)
        ],
        more=f"{held} {show.counted(jobs.expired, 'lease')} over." if jobs.expired else held,
    )


def _workers(overview: ScheduleOverview) -> Table:
    now, lease_seconds = datetime.fromtimestamp(overview.wall_ms / 1000, UTC), overview.limits.lease_seconds
    missing = overview.known_worker_count - len(overview.workers)
    return Table(
        title="Workers",
        headers=("Worker", "State", "Last poll", "Running", "Free", "Build"),
        rows=[
            (
                show.row_link(worker, show.name(worker.name)),
                job_page.worker_badge(worker, lease_seconds=lease_seconds, now=now),
                show.moment_age(worker.last_poll_at, now),
                worker.running,
                worker.capacity,
                worker.build or show.NOTHING,
            )
            for worker in overview.workers
        ],
        empty="None has polled yet: issue a credential and start a node.",
        more=show.link(show.list_address(Worker), f"{missing} more") if missing > 0 else "",
    )


def _commands(overview: ScheduleOverview) -> Table:
    commands = job_page.command_table("Last commands", overview.commands)
    everything = show.link(show.list_address(Command), "The whole log")
    return Table(
        title=commands.title,
        headers=commands.headers,
        rows=commands.rows,
        empty="The log is empty: nothing was added or planned yet.",
        more=everything if commands.rows else "",
    )
