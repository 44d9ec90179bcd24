"""Selects the merger of a node: on Spark (the default), or in this process (small machines without Java, tests).

Both write the same bytes. The setting MERGE_ON selects one. A batch may contain jobs of every kind.
"""

from __future__ import annotations

from pathlib import Path

from engine.settings.node import NodeSettings
from tasks.merger import Merger


def make_merger(settings: NodeSettings, scratch: Path) -> Merger:
    """Return the merger of the setting MERGE_ON; PySpark is imported only if that is Spark."""
    if settings.MERGE_ON == "engine":
        from tasks.engine_merger import EngineMerger

        return EngineMerger(settings.OBJECT_STORE_URL, scratch)
    from tasks.spark_merger import SparkMerger

    return SparkMerger(settings.OBJECT_STORE_URL, scratch)
