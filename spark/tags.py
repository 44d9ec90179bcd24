"""Names for what runs on Spark, so that it can be stopped from any thread.

``addTag`` and ``interruptTag`` of a session are made for this, and over Spark Connect they are what is used. A classic
session keeps its tags per thread: only the thread that added one can interrupt it, and that is the thread that waits.
There the tags of the context below the session do what the name says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def tagged(spark: SparkSession, *tags: str) -> Iterator[None]:
    """Tag all that this thread runs on Spark meanwhile. A tag has no comma and is not empty."""
    # The session of Spark Connect is of another class and has no context.
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
    """Stop what runs under a tag at this moment; harmless when there is nothing."""
    if isinstance(spark, SparkSession):
        spark.sparkContext.cancelJobsWithTag(tag)
    else:
        spark.interruptTag(tag)
