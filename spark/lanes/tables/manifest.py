"""The lane of tables on Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from engine.lanes.tables.jobs import KIND, TableChunk, TableFile, TableMergeSpec
from engine.lanes.tables.merge import merge_job
from engine.storage import open_store
from spark.lanes.manifest import Batch, SparkManifest
from spark.lanes.tables import merge

ROWS = "rows of merged files"


def _merge(session: SparkSession, specs: Sequence[TableMergeSpec], batch: Batch) -> Mapping[str, Any]:
    return merge.run(session, specs, **batch.options())


def _known_answers() -> dict[str, str]:
    """Merge two small Parquet files; return the rows, and the checksum of what was written."""

    with tempfile.TemporaryDirectory(prefix="lithify-probe-") as folder:
        root = Path(folder) / "table"
        root.mkdir()
        files = []
        for name, times, words in (("1", [2, 3], [None, "b"]), ("2", [3, 1], ["c", "a"])):
            pq.write_table(pa.table({"at": pa.array(times, pa.timestamp("ms")), "word": words}), root / name)
            files.append(TableFile(path=name, size=(root / name).stat().st_size, rows=2))
        spec = TableMergeSpec(
            job="probe",
            tenant="",
            source="probe",
            url=root.as_uri(),
            chunks=(TableChunk(start_ms=0, end_ms=10, files=tuple(files)),),
            time_column="at",
        )
        (output,) = merge_job.run(spec, open_store(spec.url), scratch=Path(folder) / "scratch").outputs
        rows = pq.read_table(root / output.path)
        times = rows.column("at").cast(pa.int64()).to_pylist()
        words = rows.column("word").to_pylist()
        merged = ", ".join(f"{at} {word}" for at, word in zip(times, words, strict=True))
        return {ROWS: merged, "bytes of merged files": f"{output.crc32c:08x}"}


MANIFEST = SparkManifest(
    name=KIND,
    merge=_merge,
    store_url=lambda spec: spec.url,
    kernels=("engine.lanes.tables.merge._row_hashes", "engine.lanes.tables.merge._row_order"),
    known_answers=_known_answers,
    expected={ROWS: "1 a, 2 None, 3 b, 3 c"},
)
