"""The lane of the catalog: a job compacts the sealed tokens of one branch into a new state.

The result replaces them if the branch still has the base version that the job was built from. Otherwise the job
completes without effect: a commit, a reset or another compaction came first, and garbage collection deletes the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.core.errors import LithifyError
from engine.formats.ranges.metarange import Metarange
from engine.lanes.catalog.jobs import KIND, CatalogCompactResult, CatalogCompactSpec, LayerFile
from engine.lanes.catalog.messages import read_catalog_result
from engine.lanes.catalog.plan.branch import Refusal
from engine.protocol.messages import FailureReason
from engine.schedule.errors import ResultRefused
from engine.schedule.explain import Explanation
from engine.schedule.model import JobResult
from webadmin.adminkit.overview import LaneOverview
from webadmin.adminkit.sections import Section
from webadmin.base.database.dialect import locked
from webadmin.lanes.catalog.compaction_sections import job_sections
from webadmin.lanes.catalog.errors import FilesCondemned
from webadmin.lanes.catalog.explain import explain_branch, explain_repository
from webadmin.lanes.catalog.lane_models import Compaction
from webadmin.lanes.catalog.lane_report import branches_waiting, repositories_kept
from webadmin.lanes.catalog.models import Build, Repository
from webadmin.lanes.catalog.overview import catalog_overview, catalogs_table, repository_rows
from webadmin.lanes.catalog.places import files_of, metarange_of, prefix_of
from webadmin.lanes.catalog.samples import catalog_samples
from webadmin.lanes.catalog.services.compaction.end_compactions import base_version_of, close_compactions, refused_words
from webadmin.lanes.catalog.services.publish import files_in, publish_compaction
from webadmin.lanes.catalog.states import CompactionState, RepositoryState
from webadmin.schedule.errors import SourcesChanged
from webadmin.schedule.lanes import Accepted, Finished, Lane, Sample, SwapMoment, Waiting
from webadmin.schedule.models import Job
from webadmin.schedule.services.operation import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The state that a compaction built."""

    compaction_id: int
    state: Metarange
    result: CatalogCompactResult


class CatalogLane(Lane):
    """Compactions lock no rows of a branch: reads and writes of it continue."""

    name = KIND
    plans_ahead = True

    def specs(self, jobs: Sequence[Job], fence: int) -> dict[int, dict[str, Any]]:
        planned = _planned(jobs)
        return {job.id: spec_of(job, planned[job.id]).to_json() for job in jobs if job.id in planned}

    def check(self, finished: Sequence[Finished]) -> list[Accepted | FailureReason]:
        planned = _planned(one.job for one in finished)
        return [_checked(one, planned.get(one.job.id)) for one in finished]

    def swap(self, swaps: Sequence[Completion], prepared: Any, moment: SwapMoment) -> None:
        ids = sorted(one.compaction_id for one in swaps)
        rows = Compaction.objects.filter(pk__in=ids, state=CompactionState.OPEN).order_by("pk")
        held = {row.pk: row for row in locked(rows)}
        if missing := set(ids) - held.keys():
            raise SourcesChanged(f"compactions {sorted(missing)} are not open any more")
        for one in swaps:
            _publish(held[one.compaction_id], one)

    def kept(self, result: JobResult) -> dict[str, Any]:
        assert isinstance(result, CatalogCompactResult), "the lane's own"
        data = result.to_json()
        return data | {"written": len(result.written)}

    def explain(self, name: str) -> list[Explanation]:
        return explain_branch(name) + explain_repository(name)

    def has_tenant(self, name: str) -> bool:
        return Repository.objects.filter(tenant=name, state=RepositoryState.ACTIVE).exists()

    def waiting(self, tenant: str | None = None) -> list[Waiting]:
        return branches_waiting(tenant)

    def kept_by_deletion(self, tenant: str) -> list[str]:
        return repositories_kept(tenant)

    def job_sections(self, job: Job, now_ms: int) -> list[Section]:
        return job_sections(job)

    def tenant_sections(self, tenant: str) -> list[Section]:
        rows = [row for row in repository_rows() if row.repository.tenant == tenant]
        return [catalogs_table(rows)] if rows else []

    def samples(self, samples_max: int) -> Iterable[tuple[str, list[Sample]]]:
        return catalog_samples(samples_max)

    def overview(self, now_ms: int) -> LaneOverview:
        return catalog_overview()

    def holding(self, jobs: Sequence[Job]) -> set[int]:
        return set(_planned(jobs))

    def give_back(self, run: Operation, jobs: Sequence[Job]) -> None:
        open_ones = list(_planned(jobs).values())
        close_compactions(open_ones, CompactionState.ENDED, because="an operator gave its branch back")


def _planned(jobs: Iterable[Job]) -> dict[int, Compaction]:
    """Return the open compactions of these jobs by job id."""
    rows = Compaction.objects.filter(job__in=[job.id for job in jobs], state=CompactionState.OPEN)
    return {row.job_id: row for row in rows.select_related("repository") if row.job_id is not None}


def spec_of(job: Job, compaction: Compaction) -> CatalogCompactSpec:
    """Return the specification that a worker receives."""
    assert compaction.run is not None, "its rows were put before its job was made"
    data = job.spec
    return CatalogCompactSpec(
        job=job.name,
        tenant=job.tenant,
        prefix=prefix_of(compaction.repository),
        base=compaction.base,
        head=compaction.head_metarange,
        layers=(LayerFile.from_json(compaction.run),),
        bytes_min=data["bytes_min"],
        bytes_max=data["bytes_max"],
        every=data["every"],
        borders_every=data["borders_every"],
        unit_bytes=data["unit_bytes"],
        task_memory_bytes=data["task_memory_bytes"],
        here_rows=data["here_rows"],
        here_bytes=data["here_bytes"],
    )


def _checked(one: Finished, compaction: Compaction | None) -> Accepted | FailureReason:
    try:
        result = read_catalog_result(one.result)
        if compaction is None:
            raise ResultRefused("its compaction is not open any more")
        state = files_of(compaction.repository).read_metarange(result.metarange)
        check_state(state, metarange_of(compaction.repository, compaction.base), result, compaction)
    except (LithifyError, KeyError) as error:
        return FailureReason(error_class=type(error).__name__, message=str(error))
    return Accepted(result, Completion(compaction_id=compaction.pk, state=state, result=result))


def check_state(state: Metarange, base: Metarange, result: CatalogCompactResult, compaction: Compaction) -> None:
    """Check a state against the reported result of its job. Raises ResultRefused.

    Its ranges are those of the base or were written by the job, and its entry count is that of the base plus the added
    minus the removed entries.
    """
    if stray := files_in(state) - files_in(base) - {state.id, *result.written}:
        raise ResultRefused(f"range {min(stray)} is neither the base's nor one that the job wrote")
    expected = base.rows + result.added - result.removed
    if state.rows != expected:
        raise ResultRefused(f"it has {state.rows} entries, where {expected} are expected")
    if result.equals_head and state.rows != metarange_of(compaction.repository, compaction.head_metarange).rows:
        raise ResultRefused("it says that it equals the head commit, which has another number of entries")


def _publish(compaction: Compaction, done: Completion) -> None:
    """Publish the state to the branch, or record why that is not possible."""
    result = done.result
    figures: dict[str, Any] = {
        "metarange": result.metarange,
        "equals_head": result.equals_head,
        "rows_read": result.rows_read,
        "added": result.added,
        "changed": result.changed,
        "removed": result.removed,
        "bytes_changed": result.bytes_changed,
        "bytes_written": result.bytes_written,
    }
    build = Build.objects.get(pk=compaction.build_id)
    try:
        moved = publish_compaction(base_version_of(compaction), build, done.state, equals_head=result.equals_head)
    except FilesCondemned as error:
        close_compactions([compaction], CompactionState.LOST, because=str(error), **figures)
        return
    if isinstance(moved, Refusal):
        close_compactions([compaction], CompactionState.LOST, because=refused_words(moved), **figures)
    else:
        close_compactions([compaction], CompactionState.PUBLISHED, **figures)
