"""Tags of Spark jobs, by which any thread can interrupt them.

Over Spark Connect, ``addTag`` and ``interruptTag`` of the session are used. A classic session keeps its tags per
thread, and only the thread that added a tag can interrupt it, but that thread is waiting. There the tags of the Spark
context are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def tagged(spark: SparkSession, *tags: str) -> Iterator[None]:
    """Tag all Spark jobs that this thread runs within the block. A tag is not empty and has no comma."""
    # The session of Spark Connect has another class and no context.
    keeper, add, remove = (
        (spark.sparkContext, "addJobTag", "removeJobTag")
        if isinstance(spark, SparkSession)
        else (spark, "addTag", "removeTag")
    )
    for tag in tags:
        getattr(keeper, add)(tag)
    try:
        yield
    finally:
        for tag in tags:
            getattr(keeper, remove)(tag)


def interrupt(spark: SparkSession, tag: str) -> None:
    """Interrupt all running Spark jobs with a tag; no effect if there is none."""
    if isinstance(spark, SparkSession):
        spark.sparkContext.cancelJobsWithTag(tag)
    else:
        spark.interruptTag(tag)
