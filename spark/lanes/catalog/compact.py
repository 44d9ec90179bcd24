"""Branch compactions on Spark: executors merge the units of many jobs in parallel, the driver writes metaranges.

``run`` gives the same ids as ``engine.lanes.catalog.compact_job.run``: it runs the same plan and the same
units, which are independent of each other. Executors write ranges under the hash of their bytes, so that a task may run
twice; files of a job without a result are deleted by age.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from engine.core.errors import LithifyError
from engine.core.thread_priority import run_at_low_priority
from engine.lanes.catalog.apply import UnitResult
from engine.lanes.catalog.apply_plan import ApplyPlan, Unit
from engine.lanes.catalog.compact_job import (
    CompactJob,
    run_planned,
    unit_from_json,
    unit_result_from_json,
    unit_result_to_json,
    unit_to_json,
)
from engine.lanes.catalog.jobs import CatalogCompactResult, CatalogCompactSpec
from engine.lanes.catalog.plan.sensor import BuildPath, PathLimits, build_path
from engine.protocol.messages import Progress
from engine.storage import ObjectStore, cached_store
from spark.errors import SparkJobFailed
from spark.frames import PARTITIONS_MAX, run_work_items
from spark.job_groups import SMALL_JOB_BYTES, JobGroups, cancelled_error, grouped
from spark.remote_errors import error_from_bytes, error_to_bytes
from spark.tags import interrupt

RESULT_DDL = "job string, units long, result binary, error binary"
SCHEMA = pa.schema([("job", pa.string()), ("units", pa.int64()), ("result", pa.binary()), ("error", pa.binary())])

Outcome = CatalogCompactResult | Exception

__all__ = ["Outcome", "interrupt", "merge_units", "run", "run_where_it_fits"]


def run(
    spark: SparkSession,
    specs: Sequence[CatalogCompactSpec],
    store_url: str,
    *,
    tag: str,
    cancelled: Callable[[str], bool] = lambda job: False,
    progress: Callable[[str, Progress], None] = lambda job, progress: None,
) -> dict[str, Outcome]:
    """Run ``specs`` and return a result or the error for each job name.

    ``tag`` names the batch for ``interrupt(spark, tag)`` and must be new for each call. ``cancelled(job)`` is called
    often and from several threads; a cancelled job gets MergeCancelled. ``progress`` counts bytes of entries.
    """
    outcomes: dict[str, Outcome] = {}
    jobs = []
    for spec in specs:
        try:
            opened = CompactJob.open(spec, cached_store(store_url))
            jobs.append(_Job(opened, opened.plan()))
        except LithifyError as error:
            outcomes[spec.job] = error
    batch = _Batch(spark, store_url, tag, cancelled, progress)
    return outcomes | batch.groups.run(grouped(jobs, SMALL_JOB_BYTES))


def run_where_it_fits(
    spark: SparkSession,
    specs: Sequence[CatalogCompactSpec],
    store_url: str,
    *,
    tag: str,
    cancelled: Callable[[str], bool] = lambda job: False,
    progress: Callable[[str, Progress], None] = lambda job, progress: None,
) -> dict[str, Outcome]:
    """Run as ``run`` does, but in this process the jobs within the limits of their specifications."""
    store, large, outcomes = cached_store(store_url), [], dict[str, Outcome]()
    for spec in specs:
        try:
            outcome: Outcome | None = _run_here(spec, store, cancelled, progress)
        except Exception as error:  # noqa: BLE001  an error of a job is the outcome of that job only
            outcome = error
        if outcome is None:
            large.append(spec)
        else:
            outcomes[spec.job] = outcome
    return outcomes | run(spark, large, store_url, tag=tag, cancelled=cancelled, progress=progress)


def _run_here(
    spec: CatalogCompactSpec,
    store: ObjectStore,
    cancelled: Callable[[str], bool],
    progress: Callable[[str, Progress], None],
) -> CatalogCompactResult | None:
    """Run a job in this process; return None if it exceeds the limits and needs Spark."""
    job = CompactJob.open(spec, store)
    plan = job.plan()
    limits = PathLimits(rows=spec.here_rows, size=spec.here_bytes)
    if build_path(rows=plan.rows, size=plan.size, units=len(plan.units), limits=limits) is BuildPath.SPARK:
        return None

    def report(done: int, total: int) -> None:
        progress(spec.job, Progress(done=done, total=total, phase="merge"))

    return run_planned(job, plan, cancelled=partial(cancelled, spec.job), progress=report)


@dataclass(frozen=True, slots=True)
class _Job:
    """A job with its plan."""

    opened: CompactJob
    plan: ApplyPlan

    @property
    def name(self) -> str:
        return self.opened.spec.job

    @property
    def size(self) -> int:
        return self.plan.size


@dataclass(slots=True)
class _Answers:
    """Results of the units of a job, or the first error."""

    results: list[UnitResult] = field(default_factory=list)
    error: LithifyError | None = None


@dataclass(frozen=True, slots=True)
class _Batch:
    """State shared by all jobs of one ``run``."""

    spark: SparkSession
    store_url: str
    tag: str
    cancelled: Callable[[str], bool]
    progress: Callable[[str, Progress], None]

    @property
    def groups(self) -> JobGroups[_Job]:
        return JobGroups(spark=self.spark, tag=self.tag, cancelled=self.cancelled, merge=self._merge)

    def _merge(self, group: list[_Job]) -> dict[str, Outcome]:
        active = self.groups.active_jobs(group)
        for job in active:
            self.progress(job.name, Progress(done=0, total=job.size, phase="merge"))
        answers = self._run(active)
        return {job.name: self._outcome(job, answers.get(job.name, _Answers())) for job in group}

    def _run(self, jobs: list[_Job]) -> dict[str, _Answers]:
        answers = {job.name: _Answers() for job in jobs}
        work_items = _work_items(jobs, self.store_url)
        if work_items:
            table = pa.table(
                {"work_item": pa.array([json.dumps(work_item).encode() for work_item in work_items], pa.binary())}
            )
            for row in run_work_items(self.spark, table, merge_units, RESULT_DDL).to_pylist():
                own = answers[row["job"]]
                if row["error"]:
                    own.error = own.error or error_from_bytes(row["error"])
                else:
                    own.results += [unit_result_from_json(each) for each in json.loads(row["result"])]
        return answers

    def _outcome(self, job: _Job, answers: _Answers) -> Outcome:
        if self.cancelled(job.name):
            return cancelled_error(job.name)
        if answers.error:
            return answers.error
        if len(answers.results) != len(job.plan.units):
            return SparkJobFailed(f"job {job.name} has {len(answers.results)} results for {len(job.plan.units)} units")
        try:
            result = job.opened.finish(job.plan, answers.results)
        except LithifyError as error:
            return error
        self.progress(job.name, Progress(done=job.size, total=job.size, phase="write"))
        return result


def _work_items(jobs: Sequence[_Job], store_url: str) -> list[dict[str, Any]]:
    """Return the work items, largest first: one unit each, or several of one job if there are very many."""
    total = sum(len(job.plan.units) for job in jobs)
    per_item = -(-total // (PARTITIONS_MAX // 2))
    shares: list[tuple[int, _Job, Sequence[Unit]]] = []
    for job in jobs:
        for start in range(0, len(job.plan.units), max(1, per_item)):
            units = job.plan.units[start : start + per_item]
            shares.append((sum(unit.size for unit in units), job, units))
    shares.sort(key=lambda share: -share[0])
    return [
        {
            "spec": job.opened.spec.to_json(),
            "store_url": store_url,
            "units": [unit_to_json(unit) for unit in units],
        }
        for _, job, units in shares
    ]


def merge_units(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Process the work items of one task on an executor."""
    for batch in batches:
        for data in batch.column("work_item").to_pylist():
            work_item = json.loads(data)
            spec = CatalogCompactSpec.from_json(work_item["spec"])
            result, error = None, None
            try:
                # Executors do not poll ``cancelled``: Spark ends the Python process of a task that it interrupts.
                job = CompactJob.open(spec, cached_store(work_item["store_url"]))
                result = run_at_low_priority(partial(_run_units, job, work_item["units"]))
            except Exception as own_error:  # noqa: BLE001  an error of one job must not stop the others
                error = error_to_bytes(own_error)
            values = (spec.job, len(work_item["units"]), result, error)
            yield pa.record_batch(
                [pa.array([value], field.type) for value, field in zip(values, SCHEMA, strict=True)], schema=SCHEMA
            )


def _run_units(job: CompactJob, units: Sequence[Any]) -> bytes:
    """Write the ranges of these units; return their results as JSON."""
    return json.dumps([unit_result_to_json(job.run_unit(unit_from_json(unit))) for unit in units]).encode()
