"""The lane of tables: a job is one task, consecutive chunks of a table's timeline.

Its jobs are created blocked. The controller cycle admits them (``services.run_cycle``); so does a commit that frees
their place (``services.admit_tasks``). A result replaces the sources chunk by chunk: immediately in the database, and
for readers of the table once the outbox has moved the pointer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import Q

from engine.core.errors import LithifyError
from engine.lanes.tables.jobs import KIND, TableMergeResult
from engine.lanes.tables.results import read_table_result
from engine.protocol.messages import FailureReason
from engine.schedule.errors import ResultRefused
from engine.schedule.explain import Explanation
from engine.schedule.model import JobResult
from webadmin.adminkit.overview import LaneOverview
from webadmin.adminkit.sections import Section
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.tables.admin.job_sections import job_sections
from webadmin.lanes.tables.admin.overview import table_rows, tables_overview, tables_table
from webadmin.lanes.tables.explain import explain_path, explain_table
from webadmin.lanes.tables.lane_report import table_blockers, tables_kept, tables_waiting
from webadmin.lanes.tables.merge_specs import PlannedTask, check_result, planned_tasks, spec_of
from webadmin.lanes.tables.models import Chunk, DataSource
from webadmin.lanes.tables.samples import table_samples
from webadmin.lanes.tables.services.admit_tasks import follow_commits
from webadmin.lanes.tables.services.commit_tasks import Completion, commit_tasks
from webadmin.lanes.tables.services.end_tasks import close_tasks
from webadmin.lanes.tables.services.overrides import release_since
from webadmin.lanes.tables.services.settle_failures import files_kept_out, of_place
from webadmin.lanes.tables.states import TaskState
from webadmin.lanes.tables.task_models import Task
from webadmin.schedule.lanes import Accepted, Finished, Lane, LaneBlocker, Sample, SwapMoment, Waiting
from webadmin.schedule.models import Job
from webadmin.schedule.services.operation import Operation, OperationOutcome


class TablesLane(Lane):
    """The lane whose tasks own chunks of tables; readers use the source files until the commit."""

    name = KIND
    plans_ahead = True

    def specs(self, jobs: Sequence[Job], fence: int) -> dict[int, dict[str, Any]]:
        planned = planned_tasks(jobs)
        return {job.id: spec_of(job, planned[job.id], fence).to_json() for job in jobs if job.id in planned}

    def check(self, finished: Sequence[Finished]) -> list[Accepted | FailureReason]:
        planned = planned_tasks([one.job for one in finished])
        return [_checked(one, planned.get(one.job.id)) for one in finished]

    def swap(self, swaps: Sequence[Completion], prepared: Any, moment: SwapMoment) -> None:
        commit_tasks(swaps, moment)

    def swapped(self, swaps: Sequence[Completion]) -> None:
        follow_commits([one.task_id for one in swaps])

    def kept(self, result: JobResult) -> dict[str, Any]:
        assert isinstance(result, TableMergeResult), "the lane's own"
        return {
            "files": result.to_log(),
            "rows_read": sum(one.rows_read for one in result.chunks),
            "rows_written": sum(one.rows_written for one in result.chunks),
            "bytes_read": sum(one.bytes_read for one in result.chunks),
            "chunks": len(result.chunks),
        }

    def explain(self, name: str) -> list[Explanation]:
        return explain_path(name) + explain_table(name)

    def has_tenant(self, name: str) -> bool:
        return DataSource.objects.filter(tenant=name).exists()

    def waiting(self, tenant: str | None = None) -> list[Waiting]:
        return tables_waiting(tenant)

    def kept_by_deletion(self, tenant: str) -> list[str]:
        return tables_kept(tenant)

    def blockers(self) -> list[LaneBlocker]:
        return table_blockers()

    def jobs_of(self, place: str) -> Q:
        return of_place(place, "tables_task__source")

    def bad_sources(self, place: str, since_ms: int, accepted_ms: int) -> Counter[str]:
        return files_kept_out(place, since_ms, accepted_ms)

    def release_bad_sources(self, place: str, since_ms: int, context: ActionContext) -> list[OperationOutcome]:
        return release_since(place, since_ms, context)

    def job_sections(self, job: Job, now_ms: int) -> list[Section]:
        return job_sections(job)

    def tenant_sections(self, tenant: str) -> list[Section]:
        rows = [row for row in table_rows() if row.source.tenant == tenant]
        return [tables_table(rows)] if rows else []

    def samples(self, samples_max: int) -> Iterable[tuple[str, list[Sample]]]:
        return table_samples(samples_max)

    def overview(self, now_ms: int) -> LaneOverview:
        return tables_overview()

    def holding(self, jobs: Sequence[Job]) -> set[int]:
        open_tasks = Task.objects.filter(job__in=[job.id for job in jobs], state=TaskState.OPEN)
        return {job_id for job_id in open_tasks.values_list("job_id", flat=True) if job_id is not None}

    def give_back(self, run: Operation, jobs: Sequence[Job]) -> None:
        tasks = list(Task.objects.filter(job__in=[job.id for job in jobs], state=TaskState.OPEN))
        Chunk.objects.filter(task__in=tasks).update(is_dirty=True, is_quarantined=False, quarantine_reason="")
        DataSource.objects.filter(tasks__in=tasks).update(is_dirty=True)
        close_tasks(tasks, TaskState.ENDED, because="an operator gave its chunks back")


def _checked(one: Finished, planned: PlannedTask | None) -> Accepted | FailureReason:
    try:
        result = read_table_result(one.result)
        if planned is None:
            raise ResultRefused("its task is not open any more")
        checked = check_result(spec_of(one.job, planned, one.job.token), planned, result)
    except (LithifyError, KeyError) as error:
        return FailureReason(error_class=type(error).__name__, message=str(error))
    return Accepted(result, Completion(task_id=planned.task.id, chunks=checked, result=result))
