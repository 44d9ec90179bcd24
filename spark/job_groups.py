"""Runs groups of jobs as Spark jobs, concurrently, and cancels them; used by merges of every kind.

The small jobs of a batch share one Spark job; a large job has its own, so that it does not hold up the others and can
be interrupted without them. If Spark aborts it (the Python process of an executor died), the jobs of that Spark job are
retried one by one, so that a job that kills executors does not fail others.
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
"""Interval at which the driver checks for cancelled jobs."""
CAUSE_CHARS_MAX = 500
_numbers = itertools.count()
"""Numbers of Spark jobs, which make their tags unique even if batches share a tag."""


class Job(Protocol):
    """A job of a batch; ``size`` is its source bytes."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...


_Job = TypeVar("_Job", bound=Job)


def grouped(jobs: Sequence[_Job], small_bytes: int) -> list[list[_Job]]:
    """Return the jobs of each Spark job: one Spark job per large job, and one for all small ones."""
    small = [job for job in jobs if job.size <= small_bytes]
    large = [[job] for job in jobs if job.size > small_bytes]
    return [*large, small] if small else large


def cancelled_error(name: str) -> MergeCancelled:
    """Return the outcome of a cancelled job."""
    return MergeCancelled(f"job {name} cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGroups(Generic[_Job]):
    """Runs groups of one batch.

    ``merge(group)`` runs one Spark job in the thread it is called in and returns an outcome (a result or an error) by
    job name. ``tag`` names the batch for ``interrupt``. ``cancelled(job)`` is called often and from several threads.
    ``poll_progress`` is called every WATCH_SECONDS while anything runs.
    """

    spark: SparkSession
    tag: str
    cancelled: Callable[[str], bool]
    merge: Callable[[list[_Job]], Mapping[str, Any]]
    poll_progress: Callable[[], None] = lambda: None

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

    def active_jobs(self, group: Sequence[_Job]) -> list[_Job]:
        """Return the jobs that are not cancelled."""
        return [job for job in group if not self.cancelled(job.name)]

    def _watch(self, futures: list[Future[dict[str, Any]]], groups: Sequence[Sequence[_Job]], tags: list[str]) -> None:
        """Wait for all futures; interrupt each Spark job whose jobs are all cancelled."""
        running = set(futures)
        while running:
            _, running = wait(running, timeout=WATCH_SECONDS, return_when=FIRST_COMPLETED)
            self.poll_progress()
            for future, group, tag in zip(futures, groups, tags, strict=True):
                # In every round: an interrupt before Spark has started the job has no effect.
                if future in running and not self.active_jobs(group):
                    interrupt(self.spark, tag)

    def _run_group(self, group: list[_Job], tag: str) -> dict[str, Any]:
        """Run one Spark job in this thread, with its tags set."""
        with tagged(self.spark, self.tag, tag):
            try:
                return dict(self.merge(group))
            except Exception as error:  # noqa: BLE001  any error of Spark fails these jobs, not the node
                return self._merge_one_by_one(group, error)

    def _merge_one_by_one(self, group: list[_Job], error: Exception) -> dict[str, Any]:
        if len(group) == 1 or not self.active_jobs(group):
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
    """Return the first cause in a Java stack trace, below the wrapping of py4j."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line for line in lines if line.startswith("Caused by: ")), lines[0])[:CAUSE_CHARS_MAX]
