"""Merges of Parquet files on Spark: the unit of parallel work is one folder of one chunk.

A unit of sorted files is merged by one task with the kernel. A large unit that is not sorted, or is rolled up, is
spread: one task reads each file, Spark sorts the rows by the keys of the engine, and one task writes them. The order of
rows is total in both cases, so that the bytes are those of ``engine.lanes.tables.merge.merge_job.run``, whatever the
parallelism.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from engine.core.errors import LithifyError
from engine.core.scratch_folders import scratch_folder, sweep_scratch
from engine.formats.parquet.errors import NotSorted
from engine.lanes.tables.jobs import TableMergeResult, TableMergeSpec, WrittenFile
from engine.lanes.tables.merge import merge_job
from engine.lanes.tables.merge.conservation import Tally
from engine.lanes.tables.merge.folder_merge import merge_folder, write_sorted
from engine.lanes.tables.merge.folder_plan import FolderPlan, plan_folder, read_footers
from engine.lanes.tables.merge.merge_job import FolderPart, Unit
from engine.lanes.tables.merge.plan_json import plan_from_json, plan_to_json
from engine.lanes.tables.merge.sort_keys import numbered_keys
from engine.protocol.messages import Progress
from engine.storage import cached_store
from spark.errors import SparkJobFailed
from spark.frames import CONNECT_PARTITIONS_MAX, PARTITIONS_MAX, run_work_items, work_item_frame
from spark.job_groups import SMALL_JOB_BYTES, JobGroups, cancelled_error, grouped
from spark.progress_files import ProgressFile
from spark.remote_errors import error_from_bytes, error_to_bytes
from spark.row_carriers import KEY, REPORT, carried_rows, carrier_ddl, is_carried, original_rows, report_row
from spark.tags import interrupt

FRAME_BYTES = 64 << 20
"""Source bytes above which a unit that needs sorting or a roll-up is spread over several tasks."""
RESULT_DDL = "unit string, result binary, plan binary, error binary"
SCHEMA = pa.schema([("unit", pa.string()), ("result", pa.binary()), ("plan", pa.binary()), ("error", pa.binary())])
Outcome = TableMergeResult | Exception

__all__ = ["Outcome", "interrupt", "merge_units", "read_files", "run", "write_rows"]


def run(
    spark: SparkSession,
    specs: Sequence[TableMergeSpec],
    *,
    tag: str,
    cancelled: Callable[[str], bool] = lambda job: False,
    progress: Callable[[str, Progress], None] = lambda job, progress: None,
    frame_bytes: int = FRAME_BYTES,
) -> dict[str, Outcome]:
    """Merge ``specs`` and return a result or the error for each job name.

    ``tag`` names the batch for ``interrupt(spark, tag)`` and must be new for each call. ``cancelled(job)`` is called
    often and from several threads; a cancelled job gets MergeCancelled. ``progress`` counts bytes of sources; for
    executors on other machines only start and end are reported. ``frame_bytes``: see FRAME_BYTES.
    """
    # The session of Spark Connect has another class, and its executors are on other machines.
    root = Path(SparkFiles.getRootDirectory()) if isinstance(spark, SparkSession) else None
    batch = _Batch(spark, tag, cancelled, progress, frame_bytes, root, {})
    jobs = [_Job(spec) for spec in specs]
    if root is not None:
        batch.files.update({job: [_progress_file(root, job.spec, unit) for unit in job.units] for job in jobs})
    return batch.groups.run(grouped(jobs, SMALL_JOB_BYTES))


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    spec: TableMergeSpec

    @property
    def name(self) -> str:
        return self.spec.job

    @property
    def size(self) -> int:
        return merge_job.source_bytes(self.spec)

    @property
    def units(self) -> list[Unit]:
        return merge_job.units(self.spec)


@dataclass(frozen=True, slots=True)
class _Batch:
    """State shared by all jobs of one ``run``."""

    spark: SparkSession
    tag: str
    cancelled: Callable[[str], bool]
    progress: Callable[[str, Progress], None]
    frame_bytes: int
    root: Path | None
    files: dict[_Job, list[ProgressFile]]

    @property
    def groups(self) -> JobGroups[_Job]:
        return JobGroups(
            spark=self.spark,
            tag=self.tag,
            cancelled=self.cancelled,
            merge=self._merge,
            poll_progress=self._poll_progress,
        )

    def _poll_progress(self) -> None:
        """Report the progress that tasks on this machine have written."""
        for job, files in self.files.copy().items():  # a copy: other threads start and end jobs concurrently
            done = [progress.done for file in files if (progress := file.read()) is not None]
            if done:
                self._report(job, min(sum(done), job.size))

    def _report(self, job: _Job, done: int) -> None:
        self.progress(job.name, Progress(done=done, total=job.size, phase=merge_job.PHASE))

    def _merge(self, group: list[_Job]) -> dict[str, Outcome]:
        active = self.groups.active_jobs(group)
        outcomes: dict[str, Outcome] = {}
        for job in active:
            self._report(job, 0)
        try:
            answers = self._merged_units(active)
            outcomes = {job.name: self._outcome(job, answers) for job in group}
        finally:
            for job in group:
                for file in self.files.pop(job, []):
                    file.remove()
                if not isinstance(outcomes.get(job.name), TableMergeResult):
                    self._withdraw(job)
        return outcomes

    def _merged_units(self, jobs: list[_Job]) -> dict[tuple[str, Unit], FolderPart | Exception]:
        """Run all units of jobs as tasks; then spread the units that are too large for one task, one by one."""
        pairs = [(job, unit) for job in jobs for unit in job.units]
        # Largest first, so that no large one runs alone at the end.
        pairs.sort(key=lambda pair: merge_job.unit_bytes(pair[0].spec, pair[1]), reverse=True)
        answers: dict[tuple[str, Unit], FolderPart | Exception] = {}
        at_once = PARTITIONS_MAX if self.root is not None else CONNECT_PARTITIONS_MAX * 16
        for start in range(0, len(pairs), at_once):
            work_items = [self._work_item(job, unit) for job, unit in pairs[start : start + at_once]]
            table = pa.table({"work_item": pa.array(work_items, pa.binary())})
            for row in run_work_items(self.spark, table, merge_units, RESULT_DDL).to_pylist():
                job, unit = json.loads(row["unit"])
                own = Unit(**unit)
                answers[job, own] = self._spread(own, row["plan"]) if row["plan"] else _answer(row, own)
        return answers

    def _work_item(self, job: _Job, unit: Unit) -> bytes:
        own = replace(job.spec, chunks=(job.spec.chunks[unit.chunk],))
        return json.dumps({"spec": own.to_json(), "unit": asdict(unit), "frame_bytes": self.frame_bytes}).encode()

    def _spread(self, unit: Unit, plan_json: bytes) -> FolderPart | Exception:
        """Merge a large unit over several tasks."""
        plan = plan_from_json(json.loads(plan_json))
        if self.cancelled(plan.spec.job):
            return cancelled_error(plan.spec.job)
        ddl = carrier_ddl(plan.schema)
        at_once = PARTITIONS_MAX if self.root is not None else CONNECT_PARTITIONS_MAX
        # A task reads one file, or several if there are more files than tasks.
        numbers = [list(range(start, len(plan.files), at_once)) for start in range(min(at_once, len(plan.files)))]
        work_items = pa.table({"work_item": pa.array([json.dumps(some).encode() for some in numbers], pa.binary())})
        rows = work_item_frame(self.spark, work_items).mapInArrow(functools.partial(read_files, plan_json), ddl)
        written = rows.repartition(1).sortWithinPartitions(KEY)
        answer = written.mapInArrow(functools.partial(write_rows, plan_json), RESULT_DDL).toArrow().to_pylist()
        if len(answer) != 1:
            return SparkJobFailed(f"{len(answer)} results were returned by one writer of job {plan.spec.job}")
        return _answer(answer[0], unit)

    def _outcome(self, job: _Job, answers: Mapping[tuple[str, Unit], FolderPart | Exception]) -> Outcome:
        if self.cancelled(job.name):
            return cancelled_error(job.name)
        parts = []
        for unit in job.units:
            answer = answers.get((job.name, unit)) or SparkJobFailed(f"no result was returned for job {job.name}")
            if isinstance(answer, Exception):
                return answer
            parts.append(answer)
        try:
            result = merge_job.result_of(job.spec, parts)
        except LithifyError as error:
            return error
        self._report(job, job.size)
        return result

    def _withdraw(self, job: _Job) -> None:
        """Delete what a job without a result may have written, and scratch files of interrupted tasks.

        An interrupted task may write another file later; files in no manifest are deleted by age.
        """
        with suppress(LithifyError):  # the error of the merge is the one to report
            merge_job.withdraw(job.spec, cached_store(job.spec.url))
        if self.root:  # on other machines the next task of an executor does it
            sweep_scratch(self.root)


def merge_units(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Process the work items of one task on an executor: merge a unit each, or return the plan to spread it."""
    for batch in batches:
        for work_item in batch.column("work_item").to_pylist():
            fields = json.loads(work_item)
            spec, unit = TableMergeSpec.from_json(fields["spec"]), Unit(**fields["unit"])
            name, result, plan, error = json.dumps([spec.job, fields["unit"]]), None, None, None
            try:
                merged = _merge_unit(spec, unit, fields["frame_bytes"])
                if isinstance(merged, FolderPlan):
                    plan = json.dumps(plan_to_json(merged)).encode()
                else:
                    result = _part_bytes(merged)
            except Exception as own_error:  # noqa: BLE001  an error of one unit must not stop the others
                error = error_to_bytes(own_error)
            yield _row(name, result, plan, error)


def read_files(plan_json: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the files of the work items, with keys, and one report row per file with its tally.

    An error is returned in a report row too, so that its class is kept.
    """
    plan = plan_from_json(json.loads(plan_json))
    store = cached_store(plan.spec.url)
    for batch in batches:
        for work_item in batch.column("work_item").to_pylist():
            for number in json.loads(work_item):
                tally = plan.tally()
                try:
                    (footer,) = read_footers(plan.files[number : number + 1], store)
                    row = 0
                    for table in plan.rows_of(store, number, footer, tally, lambda: False):
                        keys = numbered_keys(plan.order.keys(table), number, row)
                        row += table.num_rows
                        yield carried_rows(table, keys)
                    yield report_row(plan.schema, json.dumps(asdict(tally)).encode())
                except Exception as error:  # noqa: BLE001  any error: the writer raises it again
                    yield report_row(plan.schema, json.dumps({"error": error_to_bytes(error).decode()}).encode())
                    return


def write_rows(plan_json: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write all rows of a unit, sorted, on an executor."""
    plan, result, error = plan_from_json(json.loads(plan_json)), None, None
    read = plan.tally()
    try:
        rows = _uncarried(batches, plan, read)
        with scratch_folder(Path(SparkFiles.getRootDirectory())) as scratch:
            written = write_sorted(plan, rows, read, cached_store(plan.spec.url), scratch, lambda: False)
        result = _part_bytes(merge_job.part_of(Unit(0, plan.folder), written))
    except Exception as own_error:  # noqa: BLE001  an error of one unit is returned as its row
        error = error_to_bytes(own_error)
    yield _row("", result, None, error)


def _merge_unit(spec: TableMergeSpec, unit: Unit, frame_bytes: int) -> FolderPart | FolderPlan:
    """Merge a unit, or return its plan if it should be spread; ``spec`` is of its chunk alone."""
    store, root = cached_store(spec.url), Path(SparkFiles.getRootDirectory())
    progress_file = _progress_file(root, spec, Unit(0, unit.folder))
    total, done = merge_job.unit_bytes(spec, Unit(0, unit.folder)), 0

    def progress(size: int) -> None:
        nonlocal done
        done += size
        progress_file.write(Progress(done=done, total=total, phase=merge_job.PHASE))

    with scratch_folder(root) as scratch:
        plan, footers = plan_folder(spec, spec.chunks[0], unit.folder, store)
        may_spread = total > frame_bytes and is_carried(plan.schema)
        if may_spread and plan.roll_up is not None and len(plan.files) > 1:
            return plan
        try:
            # Executors do not poll ``cancelled``: Spark ends the Python process of a task that it interrupts.
            merged = merge_folder(plan, footers, store, scratch, may_sort=not may_spread, progress=progress)
        except NotSorted:
            return plan
    return merge_job.part_of(unit, merged)


def _uncarried(batches: Iterable[pa.RecordBatch], plan: FolderPlan, read: Tally) -> Iterator[pa.Table]:
    """Yield the original rows; add the tallies of the report rows to ``read``. Raises the error of a reader."""
    for batch in batches:
        reports = batch.column(REPORT).drop_null().to_pylist()
        for one in map(json.loads, reports):
            if "error" in one:
                raise error_from_bytes(one["error"].encode())
            read.include(Tally(**one))
        rows = original_rows(batch.slice(len(reports)), plan.schema)
        if rows.num_rows:
            yield rows


def _part_bytes(part: FolderPart) -> bytes:
    return json.dumps(asdict(part)).encode()


def _answer(row: Mapping[str, Any], unit: Unit) -> FolderPart | Exception:
    if row["error"]:
        return error_from_bytes(row["error"])
    fields = json.loads(row["result"])
    return FolderPart(**fields | {"unit": unit, "files": tuple(WrittenFile(**file) for file in fields["files"])})


def _row(unit: str, result: bytes | None, plan: bytes | None, error: bytes | None) -> pa.RecordBatch:
    values = (unit, result, plan, error)
    return pa.record_batch(
        [pa.array([value], field.type) for value, field in zip(values, SCHEMA, strict=True)], schema=SCHEMA
    )


def _progress_file(root: Path, spec: TableMergeSpec, unit: Unit) -> ProgressFile:
    return ProgressFile(root, Path(spec.output_path(spec.chunks[unit.chunk], unit.folder, 0)).stem)
