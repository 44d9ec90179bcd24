"""Profile merges on Spark: executors merge the datasets of many jobs in parallel, the driver writes the blocks.

``run`` gives the same bytes as ``engine.lanes.profiles.merge.merge.run``: it runs the same three steps, the second
one on executors. A unit that fails returns its error and fails its job only. ``spark.job_groups`` defines which jobs
share a Spark job.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from engine.core.errors import LithifyError
from engine.formats.profile_block.merge_model import Scratch
from engine.lanes.profiles.jobs import ProfileMergeResult, ProfileMergeSpec
from engine.lanes.profiles.merge.merge import OutputPlan, merge_dataset, plan_outputs, write_results
from engine.protocol.messages import Progress
from engine.storage import ObjectStore, cached_store, open_store
from spark.frames import run_work_items
from spark.job_groups import SMALL_JOB_BYTES, JobGroups, cancelled_error, grouped
from spark.lanes.profiles.outcomes import (
    RESULT_DDL,
    Answers,
    answers_by_job,
    check_complete,
    empty_row,
    error_row,
    merged_row,
    scratch_prefix,
)
from spark.lanes.profiles.work_items import Unit, WorkItem, make_work_items, work_item_table
from spark.tags import interrupt

INLINE_BYTES = 128 << 20
"""Maximum of section bytes that all units of one Spark job together send to the driver in their rows."""
INLINE_UNIT_BYTES_MAX = 16 << 20
"""Maximum of section bytes that one unit sends in its row: several processes hold a whole row in memory."""
CONNECT_PARALLELISM = 16
"""Assumed number of cores behind Spark Connect, which does not report it."""
WRITERS = 8
"""Number of blocks that a driver writes concurrently; writes wait for the store, not for the CPU."""

Outcome = ProfileMergeResult | Exception

__all__ = ["Outcome", "interrupt", "merge_units", "run"]


def run(
    spark: SparkSession,
    specs: Sequence[ProfileMergeSpec],
    store_url: str,
    *,
    tag: str,
    cancelled: Callable[[str], bool] = lambda job: False,
    progress: Callable[[str, Progress], None] = lambda job, progress: None,
) -> dict[str, Outcome]:
    """Merge ``specs`` and return a result or the error for each job name.

    ``tag`` names the batch for ``interrupt(spark, tag)`` and must be new for each call. ``cancelled(job)`` is called
    often and from several threads; a cancelled job gets MergeCancelled. ``progress`` counts source bytes.
    """
    batch = _Batch(spark, open_store(store_url), store_url, tag, cancelled, progress)
    try:
        return batch.run(specs)
    finally:
        batch.store.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A job with its plan."""

    spec: ProfileMergeSpec
    outputs: tuple[OutputPlan, ...]

    @property
    def name(self) -> str:
        return self.spec.job

    @property
    def units(self) -> list[Unit]:
        return [
            Unit(job=self.spec.job, output=number, dataset=position, size=dataset.source_bytes)
            for number, output in enumerate(self.outputs)
            for position, dataset in enumerate(output.datasets)
        ]

    @property
    def size(self) -> int:
        return sum(unit.size for unit in self.units)


@dataclass(frozen=True, slots=True)
class _Batch:
    """State shared by all jobs of one ``run``."""

    spark: SparkSession
    store: ObjectStore
    store_url: str
    tag: str
    cancelled: Callable[[str], bool]
    progress: Callable[[str, Progress], None]

    @property
    def groups(self) -> JobGroups[_Job]:
        return JobGroups(spark=self.spark, tag=self.tag, cancelled=self.cancelled, merge=self._merge_group)

    def run(self, specs: Sequence[ProfileMergeSpec]) -> dict[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        jobs = []
        for spec in specs:
            try:
                jobs.append(_Job(spec=spec, outputs=plan_outputs(spec)))
            except LithifyError as error:
                outcomes[spec.job] = error
        return outcomes | self.groups.run(grouped(jobs, SMALL_JOB_BYTES))

    def _merge_group(self, group: list[_Job]) -> dict[str, Outcome]:
        active = self.groups.active_jobs(group)
        for job in active:
            self.progress(job.spec.job, Progress(done=0, total=job.size, phase="merge"))
        outcomes: dict[str, Outcome] = {}
        try:
            answers = self._merge_units(active)
            with ThreadPoolExecutor(min(WRITERS, len(group)), thread_name_prefix="block-writer") as pool:
                results = pool.map(lambda job: self._finish(job, answers), group)
                outcomes |= {job.spec.job: result for job, result in zip(group, results, strict=True)}
        finally:
            for job in group:
                if not isinstance(outcomes.get(job.spec.job), ProfileMergeResult):
                    self._sweep(job)
        return outcomes

    def _merge_units(self, jobs: list[_Job]) -> dict[str, Answers]:
        units = [unit for job in jobs for unit in job.units]
        if not units:
            return {}
        work_items = make_work_items(
            [job.spec for job in jobs],
            units,
            store_url=self.store_url,
            inline_bytes=min(INLINE_UNIT_BYTES_MAX, INLINE_BYTES // len(units)),
            parallelism=_parallelism(self.spark),
        )
        return answers_by_job(
            run_work_items(self.spark, work_item_table(work_items), merge_units, RESULT_DDL), self.store
        )

    def _finish(self, job: _Job, answers: dict[str, Answers]) -> Outcome:
        """Write the blocks of a job if all of its units were merged."""
        if self.cancelled(job.spec.job):
            return cancelled_error(job.name)
        known = answers.get(job.spec.job, Answers())
        if known.error:
            return known.error
        self.progress(job.spec.job, Progress(done=job.size, total=job.size, phase="write"))
        try:
            check_complete(known, [(unit.output, unit.dataset) for unit in job.units])
            merged = [
                [known.parts[number, position] for position in range(len(output.datasets))]
                for number, output in enumerate(job.outputs)
            ]
            result = write_results(job.spec, job.outputs, merged, self.store)
            known.close()
            return result
        except LithifyError as error:
            return error

    def _sweep(self, job: _Job) -> None:
        """Delete the scratch objects of a job that has no result.

        An interrupted task may write another one later; objects below ``scratch/`` are deleted by age.
        """
        for info in list(self.store.list(scratch_prefix(job.spec))):
            self.store.delete(info.key)


def merge_units(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Process the work items of one task on an executor."""
    for batch in batches:
        for data in batch.column("work_item").to_pylist():
            work_item = WorkItem.from_bytes(data)
            plans = {spec.job: (spec, plan_outputs(spec)) for spec in work_item.specs}
            for unit in work_item.units:
                yield from _merge_unit(work_item, unit, *plans[unit.job])


def _merge_unit(
    work_item: WorkItem, unit: Unit, spec: ProfileMergeSpec, outputs: tuple[OutputPlan, ...]
) -> Iterator[pa.RecordBatch]:
    folder = Path(tempfile.mkdtemp(prefix="lithify-merge-", dir=SparkFiles.getRootDirectory()))
    try:
        store = cached_store(work_item.store_url)
        # Executors do not poll ``cancelled``: Spark ends the Python process of a task that it interrupts.
        parts = merge_dataset(
            outputs[unit.output].datasets[unit.dataset],
            store,
            budget_bytes=spec.task_memory_bytes,
            scratch=Scratch(folder),
        )
        if not parts:
            yield empty_row(unit)
        for number, part in enumerate(parts):
            yield merged_row(
                unit,
                number,
                len(parts),
                part,
                store=store,
                prefix=scratch_prefix(spec),
                inline_bytes=work_item.inline_bytes // len(parts),
            )
    except Exception as error:  # noqa: BLE001  an error of one unit must not stop the others of this task
        yield error_row(unit, error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _parallelism(spark: SparkSession) -> int:
    # The session of Spark Connect has another class and no context.
    return int(spark.sparkContext.defaultParallelism) if isinstance(spark, SparkSession) else CONNECT_PARALLELISM
