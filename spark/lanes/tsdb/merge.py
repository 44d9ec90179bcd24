"""Merges of Prometheus blocks on Spark: every job is one task, from the download of its sources to the upload.

A job is one partition of one group, so the partitions of a group and the jobs of a batch run in parallel. A task runs
``engine.lanes.tsdb.merge.merge_job.run`` independently of the others: the bytes are the same whatever the parallelism.
``spark.job_groups`` defines which jobs share a Spark job; small jobs share one and are not interrupted one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from engine.core.errors import LithifyError
from engine.core.scratch_folders import sweep_scratch
from engine.lanes.tsdb.jobs import TsdbMergeResult, TsdbMergeSpec
from engine.lanes.tsdb.merge import merge_job
from engine.lanes.tsdb.results import read_tsdb_result
from engine.protocol.messages import Progress
from engine.storage import cached_store
from spark.errors import SparkJobFailed
from spark.frames import run_work_items
from spark.job_groups import SMALL_JOB_BYTES, JobGroups, cancelled_error, grouped
from spark.progress_files import ProgressFile
from spark.remote_errors import error_from_bytes, error_to_bytes
from spark.tags import interrupt

RESULT_DDL = "job string, result binary, error binary"
SCHEMA = pa.schema([("job", pa.string()), ("result", pa.binary()), ("error", pa.binary())])

Outcome = TsdbMergeResult | Exception

__all__ = ["Outcome", "interrupt", "merge_blocks_of", "run"]


def run(
    spark: SparkSession,
    specs: Sequence[TsdbMergeSpec],
    *,
    tag: str,
    cancelled: Callable[[str], bool] = lambda job: False,
    progress: Callable[[str, Progress], None] = lambda job, progress: None,
) -> dict[str, Outcome]:
    """Merge ``specs`` and return a result or the error for each job name.

    ``tag`` names the batch for ``interrupt(spark, tag)`` and must be new for each call. ``cancelled(job)`` is called
    often and from several threads; a cancelled job gets MergeCancelled. ``progress`` counts bytes as
    ``engine.lanes.tsdb.merge.merge_job`` does; for executors on other machines only start and end are reported.
    """
    # The session of Spark Connect has another class, and its executors are on other machines.
    root = Path(SparkFiles.getRootDirectory()) if isinstance(spark, SparkSession) else None
    files = {spec.job: _progress_file(root, spec) for spec in specs} if root else {}
    batch = _Batch(spark, tag, cancelled, progress, root, files, {})
    return batch.groups.run(grouped([_Job(spec) for spec in specs], SMALL_JOB_BYTES))


@dataclass(frozen=True, slots=True)
class _Job:
    spec: TsdbMergeSpec

    @property
    def name(self) -> str:
        return self.spec.job

    @property
    def size(self) -> int:
        return merge_job.source_bytes(self.spec)


@dataclass(frozen=True, slots=True)
class _Batch:
    """State shared by all jobs of one ``run``."""

    spark: SparkSession
    tag: str
    cancelled: Callable[[str], bool]
    progress: Callable[[str, Progress], None]
    root: Path | None
    files: Mapping[str, ProgressFile]
    reported: dict[str, Progress]

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
        for job, file in self.files.items():
            progress = file.read()
            if progress is not None and progress != self.reported.get(job):
                self.reported[job] = progress
                self.progress(job, progress)

    def _merge(self, group: list[_Job]) -> dict[str, Outcome]:
        active = self.groups.active_jobs(group)
        outcomes: dict[str, Outcome] = {}
        for job in active:
            self.progress(job.name, Progress(done=0, total=job.size, phase="download"))
        try:
            answers = self._run(active)
            outcomes = {job.name: self._outcome(job, answers) for job in group}
        finally:
            for job in group:
                if job.name in self.files:
                    self.files[job.name].remove()
                if not isinstance(outcomes.get(job.name), TsdbMergeResult):
                    self._withdraw(job)
        return outcomes

    def _run(self, jobs: list[_Job]) -> dict[str, Outcome]:
        if not jobs:
            return {}
        # Largest first, so that no large one runs alone at the end.
        jobs = sorted(jobs, key=lambda job: job.size, reverse=True)
        work_items = pa.table(
            {"work_item": pa.array([json.dumps(job.spec.to_json()).encode() for job in jobs], pa.binary())}
        )
        rows = run_work_items(self.spark, work_items, merge_blocks_of, RESULT_DDL).to_pylist()
        return {
            row["job"]: error_from_bytes(row["error"]) if row["error"] else read_tsdb_result(json.loads(row["result"]))
            for row in rows
        }

    def _outcome(self, job: _Job, answers: dict[str, Outcome]) -> Outcome:
        if self.cancelled(job.name):
            return cancelled_error(job.name)
        outcome = answers.get(job.name) or SparkJobFailed(f"no result was returned for job {job.name}")
        if isinstance(outcome, TsdbMergeResult):
            self.progress(job.name, Progress(done=job.size, total=job.size, phase="upload"))
        return outcome

    def _withdraw(self, job: _Job) -> None:
        """Delete what a job without a result may have uploaded, and scratch files of interrupted tasks.

        An interrupted task may write another file later; a block without ``meta.json`` is deleted by age.
        """
        with suppress(LithifyError):  # the error of the merge is the one to report
            merge_job.withdraw(job.spec, cached_store(job.spec.bucket_url))
        if self.root:  # on other machines the next task of an executor does it
            sweep_scratch(self.root)


def merge_blocks_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Process the work items of one task on an executor."""
    for batch in batches:
        for work_item in batch.column("work_item").to_pylist():
            spec = TsdbMergeSpec.from_json(json.loads(work_item))
            result, error = None, None
            try:
                # Executors do not poll ``cancelled``: Spark ends the Python process of a task that it interrupts.
                root = Path(SparkFiles.getRootDirectory())
                merged = merge_job.run(
                    spec,
                    cached_store(spec.bucket_url),
                    scratch=root,
                    progress=_progress_file(root, spec).write,
                )
                result = json.dumps(merged.to_json()).encode()
            except Exception as own_error:  # noqa: BLE001  an error of one job must not stop the others
                error = error_to_bytes(own_error)
            yield pa.record_batch(
                [pa.array([value], field.type) for value, field in zip((spec.job, result, error), SCHEMA, strict=True)],
                schema=SCHEMA,
            )


def _progress_file(root: Path, spec: TsdbMergeSpec) -> ProgressFile:
    return ProgressFile(root, spec.result_id())
