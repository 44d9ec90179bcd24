"""The lane of text files on Spark: every job is one task, which runs the merge of the engine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from engine.storage import cached_store
from spark.errors import SparkJobFailed
from spark.frames import run_work_items
from spark.job_groups import SMALL_JOB_BYTES, JobGroups, cancelled_error, grouped
from spark.lanes.manifest import Batch, SparkManifest
from spark.remote_errors import error_from_bytes, error_to_bytes
from tests.lanes.echo.engine import merge
from tests.lanes.echo.engine.jobs import KIND, EchoResult, EchoSpec, read_result

RESULT_DDL = "job string, result binary, error binary"
SCHEMA = pa.schema([("job", pa.string()), ("result", pa.binary()), ("error", pa.binary())])
Outcome = EchoResult | Exception


@dataclass(frozen=True, slots=True)
class _Job:
    spec: EchoSpec

    @property
    def name(self) -> str:
        return self.spec.job

    @property
    def size(self) -> int:
        return sum(text.size for text in self.spec.sources)


def merge_batch(session: SparkSession, specs: Sequence[EchoSpec], batch: Batch) -> Mapping[str, Outcome]:
    """Merge ``specs`` and return a result or the error for each job name."""

    def merge_group(group: list[_Job]) -> dict[str, Outcome]:
        jobs = groups.active_jobs(group)
        items = [json.dumps(job.spec.to_json() | {"store_url": batch.store_url}).encode() for job in jobs]
        table = pa.table({"work_item": pa.array(items, pa.binary())})
        found = run_work_items(session, table, merge_texts, RESULT_DDL).to_pylist() if jobs else []
        missing: dict[str, Outcome] = {job.name: SparkJobFailed(f"no result for job {job.name}") for job in jobs}
        cancelled: dict[str, Outcome] = {job.name: cancelled_error(job.name) for job in group if job not in jobs}
        return missing | cancelled | {row["job"]: _outcome(row["result"], row["error"]) for row in found}

    groups: JobGroups[_Job] = JobGroups(spark=session, tag=batch.tag, cancelled=batch.cancelled, merge=merge_group)
    return groups.run(grouped([_Job(spec) for spec in specs], SMALL_JOB_BYTES))


def merge_texts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Process the work items of one task on an executor."""
    for batch in batches:
        for work_item in batch.column("work_item").to_pylist():
            data = json.loads(work_item)
            result, error = None, None
            try:
                result = json.dumps(merge.run(EchoSpec.from_json(data), cached_store(data["store_url"])).to_json())
            except Exception as own_error:  # noqa: BLE001  an error of one job must not stop the others
                error = error_to_bytes(own_error)
            row = (data["job"], result.encode() if result else None, error)
            columns = [pa.array([value], field.type) for value, field in zip(row, SCHEMA, strict=True)]
            yield pa.record_batch(columns, schema=SCHEMA)


def _outcome(result: bytes | None, error: bytes | None) -> Outcome:
    return read_result(json.loads(result)) if result else error_from_bytes(error or b"")


MANIFEST = SparkManifest(name=KIND, merge=merge_batch)
