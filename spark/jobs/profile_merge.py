"""Profile merges on Spark: the datasets of many jobs are merged in parallel, the blocks are written by the driver.

``run`` gives the same bytes as ``engine.lanes.profiles.merge.merge.run``: it is the same three steps, with the middle
one spread over executors. A unit that fails answers with its error and fails its job only. Which jobs share a Spark job
says ``spark.job_groups``.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.files import SparkFiles
from pyspark.sql import SparkSession

from engine.core.errors import LithifyError
from engine.formats.profile_block.merge_model import Scratch
from engine.lanes.profiles.jobs import ProfileMergeResult, ProfileMergeSpec
from engine.lanes.profiles.merge.merge import OutputPlan, merge_dataset, plan_outputs, write_results
from engine.protocol.messages import Progress
from engine.storage import ObjectStore, cached_store, open_store
from spark.frames import run_orders
from spark.job_groups import SMALL_JOB_BYTES, JobGroups, cancelled_error, grouped
from spark.orders import Order, Unit, gather, table_of
from spark.outcomes import (
    RESULT_DDL,
    Answers,
    answers_by_job,
    check_complete,
    empty_row,
    error_row,
    merged_row,
    scratch_prefix,
)
from spark.tags import interrupt

INLINE_BYTES = 128 << 20
"""How many bytes of sections all units of one Spark job together may send to the driver inside their rows."""
INLINE_UNIT_BYTES_MAX = 16 << 20
"""How many of them one unit may send, however few there are: a row is held whole at several places on its way."""
CONNECT_PARALLELISM = 16
"""Spark Connect does not tell how many cores it has."""
WRITERS = 8
"""Blocks written at the same time by one driver; writing waits for the store, not for the processor."""

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

    ``tag`` names the batch for ``interrupt(spark, tag)`` and must be new for each call. ``cancelled(job)`` is asked
    often and from several threads; a job nobody wants gets MergeCancelled. ``progress`` counts source bytes.
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
    """What all jobs of one ``run`` share."""

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
        wanted = self.groups.wanted(group)
        for job in wanted:
            self.progress(job.spec.job, Progress(done=0, total=job.size, phase="merge"))
        outcomes: dict[str, Outcome] = {}
        try:
            answers = self._merge_units(wanted)
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
        orders = gather(
            [job.spec for job in jobs],
            units,
            store_url=self.store_url,
            inline_bytes=min(INLINE_UNIT_BYTES_MAX, INLINE_BYTES // len(units)),
            parallelism=_parallelism(self.spark),
        )
        return answers_by_job(run_orders(self.spark, table_of(orders), merge_units, RESULT_DDL), self.store)

    def _finish(self, job: _Job, answers: dict[str, Answers]) -> Outcome:
        """Write the blocks of a job all of whose units were merged."""
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

        An interrupted task may write one more: what stays under ``scratch/`` is deleted by age.
        """
        for info in list(self.store.list(scratch_prefix(job.spec))):
            self.store.delete(info.key)


def merge_units(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Carry out the orders of one task, on an executor."""
    for batch in batches:
        for data in batch.column("order").to_pylist():
            order = Order.from_bytes(data)
            plans = {spec.job: (spec, plan_outputs(spec)) for spec in order.specs}
            for unit in order.units:
                yield from _merge_unit(order, unit, *plans[unit.job])


def _merge_unit(
    order: Order, unit: Unit, spec: ProfileMergeSpec, outputs: tuple[OutputPlan, ...]
) -> Iterator[pa.RecordBatch]:
    folder = Path(tempfile.mkdtemp(prefix="lithify-merge-", dir=SparkFiles.getRootDirectory()))
    try:
        store = cached_store(order.store_url)
        # An executor is not told that a job is unwanted: Spark ends the Python of a task that it interrupts.
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
                inline_bytes=order.inline_bytes // len(parts),
            )
    except Exception as error:  # noqa: BLE001  an error of one unit is its answer; the others of this task go on
        yield error_row(unit, error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _parallelism(spark: SparkSession) -> int:
    # The session of Spark Connect is of another class and has no context.
    return int(spark.sparkContext.defaultParallelism) if isinstance(spark, SparkSession) else CONNECT_PARALLELISM
