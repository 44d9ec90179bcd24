"""What Spark knows of a lane: how its jobs are merged, and what executors must compute as this process does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from engine.protocol.messages import Progress
from engine.settings.lanes import lane_manifests


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The batch of a merge. ``store_url`` is the object store of the installation.

    ``tag`` names the batch for ``spark.tags.interrupt``. ``cancelled(job)`` and ``progress(job, …)`` may be called from
    any thread.
    """

    store_url: str
    tag: str
    cancelled: Callable[[str], bool]
    progress: Callable[[str, Progress], None]

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments that the merges of all lanes take."""
        return {"tag": self.tag, "cancelled": self.cancelled, "progress": self.progress}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkManifest:
    """A lane on Spark.

    ``merge`` runs jobs and returns a result (with ``to_json``) or the error by job name, with the bytes of the engine's
    merge. ``store_url`` returns where the data of a job lies, None: in the object store of the installation.
    ``kernels`` are the compiled kernels of its merge. ``known_answers`` computes, by
    question, what must be equal on every machine; ``expected`` are independently known answers.
    """

    name: str
    merge: Callable[[SparkSession, Sequence[Any], Batch], Mapping[str, Any]]
    store_url: Callable[[Any], str] | None = None
    kernels: Sequence[str] = ()
    known_answers: Callable[[], Mapping[str, str]] = dict
    expected: Mapping[str, str] = field(default_factory=dict)


def spark_lanes(lanes: Iterable[str] | None = None) -> dict[str, SparkManifest]:
    """Return the lanes by the kind of their jobs: these, or those of LITHIFY_LANES."""
    return lane_manifests("spark", lanes)
