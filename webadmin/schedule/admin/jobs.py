"""The schedule in the admin: jobs, queues, workers, the command log. Read-only, except for actions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.decorators import display

from engine.schedule.model import JobState
from webadmin.adminkit import formatting as show
from webadmin.adminkit.actions import ActionAdmin
from webadmin.adminkit.filters import ExactFilter, LevelFilter, ShardFilter, TenantNameFilter
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.adminkit.sections import Facts, Json, Notice, Section, Table
from webadmin.base.database import dialect
from webadmin.schedule import operator_queries as queries
from webadmin.schedule.actions import JOB_ACTIONS
from webadmin.schedule.admin import job_page
from webadmin.schedule.explain import explain_job_row
from webadmin.schedule.lanes import lane_of
from webadmin.schedule.models import Command, Job, Worker
from webadmin.schedule.operator_queries import WorkerColumns
from webadmin.schedule.wall_times import NowColumns, wall_times

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

TROUBLE = "trouble"
RUNS_SHOWN_MAX = 50


class JobStateFilter(admin.SimpleListFilter):
    """Jobs of one state, or all that need attention."""

    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        states = [(state.value, state.value) for state in JobState]
        return [(TROUBLE, "problems: parked, failed or lease expired"), *states]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == TROUBLE:
            return queries.failing_jobs(queryset, queries.command_now_ms())
        return queryset.filter(state=self.value()) if self.value() in set(JobState) else queryset


class WorkerNameFilter(ExactFilter):
    """Jobs that one worker holds, or held last."""

    title = parameter_name = "worker"
    column = "worker__name"


class WorkerStateFilter(admin.SimpleListFilter):
    """Workers that poll, and those that have stopped polling."""

    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [("polling", "polling"), ("silent", "silent or revoked")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() not in ("polling", "silent"):
            return queryset
        polling = queries.polling_workers(Worker.objects.all(), datetime.fromtimestamp(dialect.clock_ms() / 1000, UTC))
        return queryset.filter(pk__in=polling) if self.value() == "polling" else queryset.exclude(pk__in=polling)


class BuildFilter(ExactFilter):
    """Workers of one build."""

    title = parameter_name = column = "build"


class KindFilter(admin.SimpleListFilter):
    """Commands of one kind."""

    title = parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return list(Command.Kind.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(kind=self.value()) if self.value() in Command.Kind.values else queryset


@admin.register(Job)
class JobAdmin(ActionAdmin):
    """Jobs, the last planned first."""

    operator_actions = JOB_ACTIONS

    list_display = (
        "name_cell",
        "state_cell",
        "place",
        "worker_cell",
        "progress_cell",
        "failure_count",
        "sources",
        "age",
    )
    list_filter = (JobStateFilter, LevelFilter, TenantNameFilter, ShardFilter, WorkerNameFilter)
    search_fields = ("name",)
    search_help_text = "Complete name of a job"
    shortcuts = (("Problems", f"state={TROUBLE}"), *((state.capitalize(), f"state={state}") for state in JobState))
    about = "Planned work: each job merges blocks of one tenant, shard and level, held by one worker at a time."
    empty_list = "No jobs. They are planned when a worker polls and a queue is ready."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        return queries.jobs_for_list(queries.command_now_ms())

    def notices(self, row: Job) -> Sequence[Notice]:
        return [Notice(tone="quiet", text=explain_job_row(row).sentence)]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        name = search_term.strip()
        return (queryset.filter(name=name) if name else queryset), False

    def sections(self, row: WithAnnotations[Job, NowColumns]) -> Sequence[Section]:
        now_ms = row.now_ms
        return [
            *job_page.job_sections(row, now_ms),
            *lane_of(row.lane).job_sections(row, now_ms),
            *job_page.job_data(row),
        ]

    @display(description="Job")
    def name_cell(self, row: Job) -> SafeString:
        return show.note(show.short_code(row.name), row.lane)

    @display(description="State")
    def state_cell(self, row: WithAnnotations[Job, NowColumns]) -> SafeString:
        return job_page.state_with_reason(row, row.now_ms)

    @display(description="Tenant")
    def place(self, row: Job) -> SafeString:
        return show.note(show.name(job_page.tenant_text(row.tenant)), show.place_text(row.shard, row.level))

    @display(description="Worker")
    def worker_cell(self, row: WithAnnotations[Job, NowColumns]) -> SafeString | str:
        return job_page.holder(row, row.now_ms)

    @display(description="Progress")
    def progress_cell(self, row: Job) -> SafeString | str:
        return job_page.progress(row)

    @display(description="Failures")
    def failure_count(self, row: Job) -> SafeString | str:
        return job_page.failures(row)

    @display(description="Sources")
    def sources(self, row: Job) -> SafeString:
        return show.note(show.counted(row.source_count, "block"), show.size_text(row.source_bytes))

    @display(description="Age")
    def age(self, row: WithAnnotations[Job, NowColumns]) -> SafeString | str:
        return show.waited(row.added_at_ms, row.now_ms, clock=show.COMMAND_TIME)


def _clock_of(row: WithAnnotations[Worker, WorkerColumns]) -> datetime:
    """Return the database's clock when the row was read; times of polls are by the same clock."""
    return datetime.fromtimestamp(row.wall_ms / 1000, UTC)


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    """Compactor nodes known to the service."""

    list_display = ("name", "state_cell", "last_poll", "running", "offers", "build_cell", "credential_cell")
    list_filter = (WorkerStateFilter, BuildFilter)
    shortcuts = (("Polling", "state=polling"), ("Silent", "state=silent"))
    search_fields = ("name",)
    search_help_text = "Part of a worker's name"
    about = "Nodes that poll for jobs. Jobs of a silent node are reassigned when their leases expire."
    empty_list = "No worker has polled yet. Issue a credential with create_worker_credential and start a node."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        return queries.workers_for_list()

    def sections(self, row: WithAnnotations[Worker, WorkerColumns]) -> Sequence[Section]:
        now_ms = queries.command_now_ms()
        return [
            Facts(
                title="The worker",
                rows=[
                    ("State", self.state_cell(row)),
                    ("Last poll", self.last_poll(row)),
                    ("First poll", show.moment_age(row.first_poll_at, _clock_of(row))),
                    ("Running jobs", self.running(row)),
                    ("Free slots at the last poll", row.capacity),
                    ("Build", self.build_cell(row)),
                    ("Credential", self.credential_cell(row)),
                ],
            ),
            self._held(row, now_ms),
            self._attempts(row, now_ms),
        ]

    def _held(self, row: Worker, now_ms: int) -> Table:
        return Table(
            title="Running jobs",
            headers=("Job", "Tenant", "Lease", "Progress", "Sources"),
            rows=[
                (
                    show.row_link(job, show.code(job.name)),
                    show.note(show.name(job_page.tenant_text(job.tenant)), show.place_text(job.shard, job.level)),
                    job_page.lease_left(job, now_ms),
                    job_page.progress(job),
                    show.note(show.counted(job.source_count, "block"), show.size_text(job.source_bytes)),
                )
                for job in queries.jobs_of_worker(row, now_ms, RUNS_SHOWN_MAX)
            ],
            empty="No running jobs.",
        )

    def _attempts(self, row: Worker, now_ms: int) -> Table:
        attempts = queries.attempts_of_worker(row, RUNS_SHOWN_MAX)
        walls = wall_times(attempt.token for attempt in attempts)
        return Table(
            title="Last runs",
            headers=("Job", "Token", "Assigned", "Outcome"),
            rows=[
                (
                    show.row_link(attempt.job, show.code(attempt.job.name)),
                    show.command_link(attempt.token),
                    show.age(walls.of(attempt.assigned_at_ms, attempt.token), walls.wall_ms),
                    job_page.outcome(attempt),
                )
                for attempt in attempts
            ],
            empty="No job was assigned yet.",
        )

    @display(description="State")
    def state_cell(self, row: WithAnnotations[Worker, WorkerColumns]) -> SafeString:
        return job_page.worker_badge(row, lease_seconds=row.lease_seconds, now=_clock_of(row))

    @display(description="Last poll")
    def last_poll(self, row: WithAnnotations[Worker, WorkerColumns]) -> SafeString | str:
        return show.moment_age(row.last_poll_at, _clock_of(row))

    @display(description="Running")
    def running(self, row: WithAnnotations[Worker, WorkerColumns]) -> SafeString | str:
        filters = {"state": JobState.LEASED.value, "worker": row.name}
        return show.link(show.list_address(Job, **filters), show.counted(row.running, "job")) if row.running else "0"

    @display(description="Free slots")
    def offers(self, row: Worker) -> int:
        return row.capacity

    @display(description="Build")
    def build_cell(self, row: Worker) -> str:
        return row.build or show.NOTHING

    @display(description="Credential")
    def credential_cell(self, row: Worker) -> SafeString | str:
        return show.row_link(row.credential)


@admin.register(Command)
class CommandAdmin(ReadOnlyAdmin):
    """The command log, the newest entry first."""

    list_display = ("number", "time", "kind_cell", "actor", "change")
    list_filter = (KindFilter,)
    search_fields = ("index",)
    search_help_text = "Index of a command, or fencing token of a job"
    about = "Every change of plan, in order. The index of the entry that assigns a job is the job's fencing token."
    empty_list = "The command log is empty: nothing was added or planned yet."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Command]:
        return queries.with_now(Command.objects.all(), queries.command_now_ms())

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Command], search_term: str
    ) -> tuple[QuerySet[Command], bool]:
        text = search_term.strip().removeprefix("#")
        if not text:
            return queryset, False
        is_index = text.isascii() and text.isdigit() and len(text) < 19
        return (queryset.filter(index=int(text)) if is_index else queryset.none()), False

    def heading(self, row: Command) -> str:
        return f"Command {row.index}: {row.get_kind_display()}"

    def sections(self, row: WithAnnotations[Command, NowColumns]) -> Sequence[Section]:
        return [
            Facts(
                title="The command",
                rows=[
                    ("Index (fencing token of assigned jobs)", row.index),
                    ("Command time", f"{show.moment_text(row.command_time_ms)} ({row.command_time_ms % 1000} ms)"),
                    ("Wall time", f"{show.moment_text(show.epoch_ms(row.wall_time))} UTC"),
                    ("Kind", self.kind_cell(row)),
                    ("Actor", row.actor),
                    ("Change", self.change(row)),
                    ("Format of the change set", row.format_version),
                ],
            ),
            self._jobs(row),
            Json(title="Change set", data=row.change_set),
        ]

    def _jobs(self, row: WithAnnotations[Command, NowColumns]) -> Table:
        return Table(
            title="Jobs",
            headers=("Job", "State now", "Token now"),
            rows=[
                (
                    show.row_link(job, show.code(name)),
                    job_page.state_with_reason(job, row.now_ms),
                    show.command_link(job.token) if job.token else show.NOTHING,
                )
                for name, job in queries.jobs_in_command(row).items()
            ],
            empty="The command concerns no job.",
        )

    @display(description="Index")
    def number(self, row: Command) -> SafeString:
        return show.code(f"#{row.index}")

    @display(description="When (UTC)")
    def time(self, row: Command) -> SafeString:
        wall_ms = show.epoch_ms(row.wall_time)
        age = show.duration_text(max(show.epoch_ms(timezone.now()) - wall_ms, 0))
        return show.note(show.moment_text(wall_ms), f"{age} ago")

    @display(description="Kind")
    def kind_cell(self, row: Command) -> SafeString:
        return show.badge(row.get_kind_display(), "quiet")

    @display(description="Change")
    def change(self, row: Command) -> str:
        return job_page.change_text(row)
