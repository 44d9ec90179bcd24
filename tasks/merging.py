"""The two ways a node can merge: on Spark (the way), or in this process (small machines without Java, tests).

Both give the same bytes. Which one is the setting MERGE_ON. A batch may hold jobs of every kind.
"""

from __future__ import annotations

from pathlib import Path

from tasks.merger import Merger
from tasks.settings import NodeSettings


def make_merger(settings: NodeSettings, scratch: Path) -> Merger:
    """Return the merger of the setting MERGE_ON; nothing of Spark is imported unless it is wanted."""
    if settings.merge_on == "engine":
        from tasks.engine_merger import EngineMerger

        return EngineMerger(settings.object_store_url, scratch)
    from tasks.spark_merger import SparkMerger

    return SparkMerger(settings.object_store_url, scratch)
