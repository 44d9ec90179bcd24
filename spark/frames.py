"""From rows to tasks and back: frames whose every row is a partition of its own.

The rows of our frames are orders of work. One row per partition lets Spark hand them out one by one, as cores become
free; rows packed into few partitions would wait for each other. Nothing here needs a shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

PARTITIONS_MAX = 4096
"""Most rows of a frame of orders: each becomes a task, and a driver keeps track of all of them."""
CONNECT_PARTITIONS_MAX = 256
"""Most partitions of a frame of orders over Spark Connect; beyond it rows share them."""

BatchFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def frame_of_orders(spark: SparkSession, orders: pa.Table) -> DataFrame:
    """Make a frame with one partition per row.

    Classic Spark makes a partition of every Arrow batch; Spark Connect spreads rows over
    ``spark.sql.leafNodeDefaultParallelism`` partitions, which the session sets to CONNECT_PARTITIONS_MAX.
    """
    if orders.num_rows > PARTITIONS_MAX:
        raise ValueError(f"{orders.num_rows} orders in a frame, at most {PARTITIONS_MAX} can be handed out one by one")
    batches = [batch for row in range(orders.num_rows) for batch in orders.slice(row, 1).to_batches()]
    return spark.createDataFrame(pa.Table.from_batches(batches, orders.schema))


def run_orders(spark: SparkSession, orders: pa.Table, function: BatchFunction, result_ddl: str) -> pa.Table:
    """Run ``function`` on the executors over every row of ``orders`` and return what it yields, in any order.

    ``function`` must be a module-level function of an installed package: then it travels as a name.
    """
    return frame_of_orders(spark, orders).mapInArrow(function, result_ddl).toArrow()
