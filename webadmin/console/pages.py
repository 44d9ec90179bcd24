"""The front page of the admin: the state of the system, the index and the schedule."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from engine.schedule.model import JobState
from engine.schedule.pauses import PausedScope
from webadmin.adminkit import formatting as show
from webadmin.adminkit.sections import Table
from webadmin.adminkit.verdict import Notice, Standing, verdict
from webadmin.base.access.confinement import confined_tenants
from webadmin.base.access.models import WorkerCredential
from webadmin.base.access.queries import expiring_credential_count
from webadmin.base.database import dialect, durability
from webadmin.lanes.catalog.overview import catalog_standings, catalogs_table
from webadmin.lanes.profiles.admin import queue_labels
from webadmin.lanes.profiles.deletion_queries import late_requests
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import Block, DeadLetter, DeleteRequest, LineageMark, Tombstone
from webadmin.lanes.profiles.operator_queries import (
    IndexTotals,
    LevelQueues,
    LevelTotal,
    index_totals,
    level_queues,
    next_queues,
)
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.lanes.profiles.services.event_totals import RECOVERED, last_counted_ms
from webadmin.lanes.profiles.states import BlockState
from webadmin.lanes.tables.models import BadFile, Chunk, DataSource
from webadmin.lanes.tables.overview import TableStanding, table_standings, tables_table
from webadmin.lanes.tsdb.models import BlockQuarantine, Bucket, BucketTenant, OutboxStep
from webadmin.lanes.tsdb.overview import buckets_table
from webadmin.lanes.tsdb.standing import BucketStanding, bucket_standings
from webadmin.placement.models import Instance
from webadmin.progress.due_work import covered_by, held_jobs
from webadmin.progress.facts import counted_ms_ago
from webadmin.progress.health import counting_late
from webadmin.progress.models import ParkedJob
from webadmin.schedule.admin import job_page
from webadmin.schedule.breakages import merging_is_broken
from webadmin.schedule.isolation_stops import stops_in_words
from webadmin.schedule.models import Command, Job, Worker
from webadmin.schedule.operation_models import IsolationStop, Pause
from webadmin.schedule.operator_queries import DONE_COUNTED_MAX, JobCounts, ScheduleOverview, schedule_overview
from webadmin.schedule.pauses import paused_scopes
from webadmin.schedule.register import failing_jobs
from webadmin.schedule.services.guard_deletions import log_behind

REFRESH_SECONDS = 5
OLD_TOTALS_SECONDS = 15
TROUBLE_FILTER = "trouble"
PAUSES_NAMED = 3
RECOVERY_SHOWN_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One number on the front page, the text below it, and its link."""

    title: str
    number: str
    more: str
    address: str


def front_page(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Return the context of the front page (unfold's DASHBOARD_CALLBACK); a refresh by htmx gets the content only."""
    overview, totals, buckets = schedule_overview(), index_totals(), bucket_standings()
    queues, tables = level_queues(overview.now_ms), table_standings()
    catalogs = catalog_standings()
    is_for_all = confined_tenants() is None
    is_refresh = request.headers.get("HX-Request") == "true"
    notices = verdict(_standing(overview, queues, totals, buckets, tables))
    return context | {
        "title": "Overview",
        "frame": "console/bare.html" if is_refresh else "admin/base_site.html",
        "refresh_seconds": REFRESH_SECONDS,
        "notices": [(notice, _place(notice)) for notice in notices],
        "tiles": _tiles(overview, queues, totals),
        "tables": [
            *(_levels(totals), _queues(queues, overview.now_ms), _jobs(overview.jobs)),
            *([_workers(overview)] if is_for_all else []),
        ],
        "wide_tables": [
            *([tables_table(tables)] if tables else []),
            *([buckets_table(buckets)] if buckets else []),
            *([catalogs_table(catalogs)] if catalogs else []),
            _first_queues(overview.now_ms),
            *([_commands(overview)] if is_for_all else []),
        ],
        "as_of": f"{show.moment_text(dialect.clock_ms())} UTC",
    }


def _standing(
    overview: ScheduleOverview,
    queues: Sequence[LevelQueues],
    totals: IndexTotals,
    buckets: Sequence[BucketStanding],
    tables: Sequence[TableStanding],
) -> Standing:
    jobs = overview.jobs
    next_ready = [queue.next_ready_ms for queue in queues if queue.next_ready_ms is not None]
    ready = sum(queue.ready_count for queue in queues)
    scopes = paused_scopes(overview.now_ms)
    failing = Instance.objects.filter(left_at_ms=None).exclude(store_error="")
    store_errors = list(failing.values_list("store_error", flat=True)) if confined_tenants() is None else []
    ready_queues = LevelQueue.objects.filter(block_count__gt=0, ready_at_ms__lte=overview.now_ms)
    return Standing(
        block_count=sum(total.block_count for total in totals.live),
        parked_blocks=sum(total.block_count for total in totals.live if total.state == BlockState.PARKED),
        ready_queues=ready,
        waiting_queues=sum(queue.queue_count for queue in queues) - ready,
        next_ready_in_ms=min(next_ready) - overview.now_ms if next_ready else None,
        running_jobs=jobs.leased,
        waiting_jobs=jobs.waiting,
        expired_jobs=jobs.expired,
        parked_jobs=jobs.parked,
        parked_sources=jobs.parked_sources,
        live_jobs=jobs.live(),
        queue_max=overview.limits.queue_max,
        polling_workers=overview.polling_worker_count,
        known_workers=overview.known_worker_count,
        broken_builds=[str(breakage) for breakage in merging_is_broken(overview.now_ms)],
        paused=_paused(scopes),
        paused_queues=ready_queues.filter(covered_by(scopes)).count() if scopes else 0,
        paused_jobs=Job.objects.filter(held_jobs(scopes), state=JobState.WAITING).count() if scopes else 0,
        isolation_stop=stops_in_words(),
        failing_jobs=failing_jobs(),
        quarantined_blocks=Quarantine.objects.filter(released_at_ms=None).count(),
        waiting_letters=totals.waiting_letters,
        letters_recovered_ms_ago=_letters_recovered_ms_ago(overview.wall_ms),
        late_requests=late_requests(DeleteRequest.objects.all(), overview.now_ms).count(),
        failing_deletions=totals.failing_deletions,
        buckets=len(buckets),
        silent_buckets=sum(bool(one.bucket.scan_error) and not one.bucket.is_paused for one in buckets),
        refused_tenants=sum(one.refused for one in buckets),
        kept_out_blocks=sum(one.kept_out for one in buckets),
        failing_writes=sum(one.failing_writes for one in buckets),
        published_parts=sum(one.parts for one in buckets),
        too_large_groups=sum(one.too_large for one in buckets),
        compactions_ahead=sum(one.compactions for one in buckets),
        tables=len(tables),
        refused_tables=sum(bool(one.source.refusal) for one in tables),
        unpublished_tables=sum(bool(one.source.publish_error) for one in tables),
        quarantined_chunks=sum(one.now.quarantined for one in tables),
        stuck_chunks=sum(one.now.stuck for one in tables),
        bad_files=sum(one.now.bad_files for one in tables),
        expiring_credentials=expiring_credential_count(timezone.now()),
        log_behind=log_behind(),
        not_counting=counting_late(counted_ms_ago(overview.wall_ms)),
        unsafe_database=durability.refusal(),
        failing_writers=len(store_errors),
        store_error=store_errors[0] if store_errors else "",
        unknown_segments=LineageMark.objects.values_list("unknown_segments", flat=True).first() or 0,
    )


def _letters_recovered_ms_ago(wall_ms: int) -> int | None:
    """Return how long ago dead letters were recovered, None if that is no news; they are of all tenants."""
    at_ms = last_counted_ms(RECOVERED) if confined_tenants() is None else None
    return wall_ms - at_ms if at_ms and at_ms > wall_ms - RECOVERY_SHOWN_MS else None


def _paused(scopes: Sequence[PausedScope]) -> list[str]:
    """Return the first pauses as text, and the count of the rest in one more line."""
    named = [str(scope) for scope in scopes[:PAUSES_NAMED]]
    more = len(scopes) - len(named)
    return [*named, f"{show.count_text(more)} more"] if more else named


def _place(notice: Notice) -> str:
    places = {
        "writers": lambda: show.list_address(Instance),
        "workers": lambda: show.list_address(Worker),
        "jobs": lambda: show.list_address(Job),
        "parked_jobs": lambda: show.list_address(ParkedJob),
        "standstill": lambda: reverse("standstill-page"),
        "pauses": lambda: show.list_address(Pause, now="in_force"),
        "late_requests": lambda: show.list_address(DeleteRequest, state="late"),
        "isolation_stop": lambda: show.list_address(IsolationStop, ended_at_ms__isnull=1),
        "quarantine": lambda: show.list_address(Quarantine, released_at_ms__isnull=1),
        "letters": lambda: show.list_address(DeadLetter, state="waiting"),
        "failing_deletions": lambda: show.list_address(Tombstone, state="failing"),
        "trouble": lambda: show.list_address(Job, state=TROUBLE_FILTER),
        "buckets": lambda: show.list_address(Bucket),
        "outbox": lambda: show.list_address(OutboxStep, now="open"),
        "kept_out": lambda: show.list_address(BlockQuarantine, released_at_ms__isnull=1),
        "refused_tenants": lambda: show.list_address(BucketTenant, state="refused"),
        "tables": lambda: show.list_address(DataSource),
        "quarantined_chunks": lambda: show.list_address(Chunk, state="quarantined"),
        "credentials": lambda: show.list_address(WorkerCredential),
        "bad_files": lambda: show.list_address(BadFile),
        "parked_blocks": lambda: show.list_address(Block, state=BlockState.PARKED.value),
    }
    return places[notice.place]() if notice.place else ""


def _tiles(overview: ScheduleOverview, queues: Sequence[LevelQueues], totals: IndexTotals) -> list[Tile]:
    jobs = overview.jobs
    waiting = sum(queue.block_count for queue in queues)
    return [
        Tile(
            title="Live objects",
            number=show.count_text(sum(total.block_count for total in totals.live)),
            more=show.size_text(sum(total.byte_count for total in totals.live)),
            address=show.list_address(Block, state="live"),
        ),
        Tile(
            title="Blocks that wait",
            number=show.count_text(waiting),
            more=f"in {counted_queues(queues)}",
            address=show.list_address(LevelQueue, fill="ready"),
        ),
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


def counted_queues(queues: Iterable[Any]) -> str:
    """Return how many queues hold blocks, as text."""
    return show.counted(sum(queue.queue_count for queue in queues), "queue")


def _levels(totals: IndexTotals) -> Table:
    age_seconds = time.time() - totals.counted_at
    is_old = age_seconds > OLD_TOTALS_SECONDS
    more = [f"{show.counted(totals.awaiting_deletion, 'removed object')} awaiting deletion."]
    if is_old:
        more.append(f"Counted {show.duration_text(int(age_seconds * 1000))} ago.")
    return Table(
        title="Objects by level",
        headers=("Level", "Objects", "Bytes", "Of them"),
        rows=[_level_row(level, totals.live) for level in sorted({total.level for total in totals.live})],
        empty="No blocks of profiles yet: start a writer, or run manage.py import_blocks on a bucket.",
        more=" ".join(more),
    )


def _level_row(level: int, totals: Iterable[LevelTotal]) -> tuple[object, ...]:
    here = [total for total in totals if total.level == level]
    states = ", ".join(f"{show.count_text(total.block_count)} {total.held or total.state}" for total in here)
    blocks = show.list_address(Block, level=level, state="live")
    name = "0, segments" if level == 0 else str(level)
    return (
        show.link(blocks, name),
        show.count_text(sum(total.block_count for total in here)),
        show.size_text(sum(total.byte_count for total in here)),
        states,
    )


def _queues(queues: Sequence[LevelQueues], now_ms: int) -> Table:
    return Table(
        title="Queues by level",
        headers=("Level", "Queues", "Blocks", "Oldest", "Ready"),
        rows=[
            (
                show.link(show.list_address(LevelQueue, level=queue.level), queue.level),
                show.count_text(queue.queue_count),
                show.note(show.count_text(queue.block_count), show.size_text(queue.byte_count)),
                show.age(queue.oldest_arrival_ms, now_ms, clock=show.COMMAND_TIME),
                _readiness(queue.ready_count, queue.next_ready_ms, now_ms),
            )
            for queue in queues
        ],
        empty="Nothing waits: every queue is empty.",
    )


def _readiness(ready: int, next_ready_ms: int | None, now_ms: int) -> SafeString | str:
    if ready:
        return show.badge(f"{show.count_text(ready)} ready", "busy")
    wait = "" if next_ready_ms is None else f"next in {show.duration_text(max(next_ready_ms - now_ms, 1000))}"
    return show.note(show.badge("not yet", "quiet"), wait)


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


def _first_queues(now_ms: int) -> Table:
    return Table(
        title="Next queues",
        headers=("Tenant", "Shard", "Level", "Oldest", "Ready", "Why"),
        rows=[
            (
                show.row_link(queue, show.name(job_page.tenant_text(queue.tenant))),
                queue.shard,
                queue.level,
                show.age(queue.oldest_arrival_ms, now_ms, clock=show.COMMAND_TIME),
                queue_labels.ready_badge(fill),
                queue_labels.ready_reason(fill),
            )
            for queue in next_queues(now_ms)
            for fill in [queue_labels.QueueFill.from_row(queue)]
        ],
        empty="Nothing waits.",
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
