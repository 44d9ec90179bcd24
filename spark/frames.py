"""Data frames in which each row is a partition of its own.

The rows are work items. With one row per partition, Spark assigns them one by one to free cores; rows packed into few
partitions would wait for each other. No shuffle is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

PARTITIONS_MAX = 4096
"""Maximum of rows of a frame of work items: each becomes a task that the driver tracks."""
CONNECT_PARTITIONS_MAX = 256
"""Maximum of partitions of a frame of work items over Spark Connect; with more rows, rows share partitions."""

BatchFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def work_item_frame(spark: SparkSession, work_items: pa.Table) -> DataFrame:
    """Return a frame with one partition per row.

    Classic Spark makes a partition of every Arrow batch; Spark Connect spreads rows over
    ``spark.sql.leafNodeDefaultParallelism`` partitions, which the session sets to CONNECT_PARTITIONS_MAX.
    """
    if work_items.num_rows > PARTITIONS_MAX:
        raise ValueError(f"{work_items.num_rows} work items in a frame, at most {PARTITIONS_MAX} are supported")
    batches = [batch for row in range(work_items.num_rows) for batch in work_items.slice(row, 1).to_batches()]
    return spark.createDataFrame(pa.Table.from_batches(batches, work_items.schema))


def run_work_items(spark: SparkSession, work_items: pa.Table, function: BatchFunction, result_ddl: str) -> pa.Table:
    """Run ``function`` on the executors over every row of ``work_items``; return the rows that it yields, in any order.

    ``function`` must be a module-level function of an installed package, so that it is pickled by name.
    """
    return work_item_frame(spark, work_items).mapInArrow(function, result_ddl).toArrow()
