"""Groups of jobs that share a Spark job, run at the same time and watched: what merges of every kind have in common.

The small jobs of a batch share one Spark job; a large job has its own, so that it does not hold up the others and can
be interrupted without them. If Spark itself gives up (an executor's Python died), the jobs of that Spark job are tried
again one by one, so that a job that kills executors does not take others with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pyspark.sql import SparkSession

from engine.core.errors import LithifyError, MergeCancelled
from spark.errors import SparkJobFailed
from spark.tags import interrupt, tagged

SMALL_JOB_BYTES = 32 << 20
"""Source bytes up to which a job shares a Spark job with others of its batch: a fraction of a second on one core."""
WATCH_SECONDS = 0.1
"""How often the driver asks whether its jobs are still wanted."""
CAUSE_CHARS_MAX = 500
_numbers = itertools.count()
"""Of Spark jobs, so that none has the tag of another, whatever runs under one tag of a batch."""


class Job(Protocol):
    """A job of a batch; ``size`` is its source bytes."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...


_Job = TypeVar("_Job", bound=Job)


def grouped(jobs: Sequence[_Job], small_bytes: int) -> list[list[_Job]]:
    """Return what goes into one Spark job each: every large job alone, all small ones together."""
    small = [job for job in jobs if job.size <= small_bytes]
    large = [[job] for job in jobs if job.size > small_bytes]
    return [*large, small] if small else large


def cancelled_error(name: str) -> MergeCancelled:
    """Return the outcome of a job that nobody wants."""
    return MergeCancelled(f"nobody wants job {name} any more")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGroups(Generic[_Job]):
    """Runs groups of one batch.

    ``merge(group)`` runs one Spark job in the thread it is called in and returns an outcome (a result or an error) by
    job name. ``tag`` names the batch for ``interrupt``. ``cancelled(job)`` is asked often and from several threads.
    ``look`` is called now and then while anything runs.
    """

    spark: SparkSession
    tag: str
    cancelled: Callable[[str], bool]
    merge: Callable[[list[_Job]], Mapping[str, Any]]
    look: Callable[[], None] = lambda: None

    def run(self, groups: Sequence[list[_Job]]) -> dict[str, Any]:
        """Return the outcomes of all jobs of all groups by name."""
        outcomes: dict[str, Any] = {}
        if groups:
            with ThreadPoolExecutor(len(groups), thread_name_prefix="spark-job") as pool:
                tags = [f"{self.tag}-{next(_numbers)}" for _ in groups]
                futures = [pool.submit(self._run_group, group, tag) for group, tag in zip(groups, tags, strict=True)]
                self._watch(futures, groups, tags)
            for future in futures:
                outcomes |= future.result()
        return outcomes

    def wanted(self, group: Sequence[_Job]) -> list[_Job]:
        """Return the jobs that somebody still wants."""
        return [job for job in group if not self.cancelled(job.name)]

    def _watch(self, futures: list[Future[dict[str, Any]]], groups: Sequence[Sequence[_Job]], tags: list[str]) -> None:
        """Wait for all, and interrupt a Spark job none of whose jobs is wanted any more."""
        running = set(futures)
        while running:
            _, running = wait(running, timeout=WATCH_SECONDS, return_when=FIRST_COMPLETED)
            self.look()
            for future, group, tag in zip(futures, groups, tags, strict=True):
                # Again at every round: an interrupt that comes before Spark has begun finds nothing to stop.
                if future in running and not self.wanted(group):
                    interrupt(self.spark, tag)

    def _run_group(self, group: list[_Job], tag: str) -> dict[str, Any]:
        """Run one Spark job in this thread, whose tags it carries."""
        with tagged(self.spark, self.tag, tag):
            try:
                return dict(self.merge(group))
            except Exception as error:  # noqa: BLE001  whatever Spark raises ends these jobs, not the node
                return self._merge_one_by_one(group, error)

    def _merge_one_by_one(self, group: list[_Job], error: Exception) -> dict[str, Any]:
        if len(group) == 1 or not self.wanted(group):
            return {job.name: self._failure(job, error) for job in group}
        outcomes: dict[str, Any] = {}
        for job in group:
            try:
                outcomes |= self.merge([job])
            except Exception as own_error:  # noqa: BLE001  as above
                outcomes[job.name] = self._failure(job, own_error)
        return outcomes

    def _failure(self, job: _Job, error: Exception) -> Exception:
        if self.cancelled(job.name):
            return cancelled_error(job.name)
        if isinstance(error, LithifyError):
            return error
        return SparkJobFailed(first_cause(error))


def first_cause(error: Exception) -> str:
    """Return the line of a Java stack trace that says what happened: the first cause, below the wrapping of py4j."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line for line in lines if line.startswith("Caused by: ")), lines[0])[:CAUSE_CHARS_MAX]
