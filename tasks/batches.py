"""Runs a batch: the jobs of one message, started at most once, merged together and completed one by one.

The transition from assigned to running in the lease table decides which jobs a message starts, so a message that is
delivered several times merges once.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Mapping

import structlog

from engine.core.version import VERSION
from engine.protocol.messages import FailureReason, Progress
from tasks.errors import MergerDied, ResultMissing
from tasks.health import Health
from tasks.leases import HeldJob, LeaseTable, Pair
from tasks.merger import Merger, Outcome
from tasks.metrics import node_metrics

log = structlog.get_logger(__name__)


class Batches:
    """Runs the jobs of messages in the calling thread and stops cancelled ones."""

    def __init__(self, table: LeaseTable, merger: Merger, health: Health) -> None:
        self._table = table
        self._merger = merger
        self._health = health
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._running: dict[str, tuple[Pair, ...]] = {}

    def run(self, pairs: Iterable[Pair]) -> int:
        """Merge those pairs that are assigned and not yet started; return their number.

        Raises MergerDied after the jobs have been completed with that error.
        """
        held = [one for pair in pairs if (one := self._table.begin(pair))]
        if not held:
            return 0
        started = time.monotonic()
        for one in held:
            log.info("job_started", **_names(one), jobs_in_batch=len(held))
        outcomes = self._merge(held)
        node_metrics.observe("lithify_node_batch_seconds", value=time.monotonic() - started)
        self._health.note([outcomes[one.job] for one in held if one.job in outcomes and not self._is_stopped(one)])
        for one in held:
            self._end(one, outcomes.get(one.job) or _missing(one), time.monotonic() - started)
        for outcome in outcomes.values():
            if isinstance(outcome, MergerDied):
                raise outcome
        return len(held)

    def stop(self, pairs: Iterable[Pair]) -> None:
        """Stop these pairs; interrupt each batch whose jobs are all stopped."""
        stopped = set(pairs)
        with self._lock:
            cancelled = [
                batch
                for batch, members in self._running.items()
                if stopped.intersection(members) and all(self._table.is_stopped(member) for member in members)
            ]
        for batch in cancelled:
            log.info("batch_interrupted", batch=batch)
            self._merger.interrupt(batch)

    def _merge(self, held: list[HeldJob]) -> Mapping[str, Outcome]:
        pairs = {one.job: one.pair for one in held}
        with self._lock:
            batch = f"batch-{next(self._numbers)}"
            self._running[batch] = tuple(pairs.values())
        try:
            if all(self._table.is_stopped(pair) for pair in pairs.values()):
                return {}  # stopped before the batch was known to ``stop``
            return self._merger.merge(
                batch,
                {one.job: one.spec for one in held},
                cancelled=lambda job: self._table.is_stopped(pairs[job]),
                progress=lambda job, progress: self._note(pairs, job, progress),
            )
        except Exception as error:  # noqa: BLE001  any error must fail these jobs, not the node
            return dict.fromkeys(pairs, error)
        finally:
            with self._lock:
                del self._running[batch]

    def _is_stopped(self, one: HeldJob) -> bool:
        return self._table.is_stopped(one.pair)

    def _note(self, pairs: dict[str, Pair], job: str, progress: Progress) -> None:
        if job in pairs:
            self._table.note_progress(pairs[job], progress)

    def _end(self, one: HeldJob, outcome: Outcome, seconds: float) -> None:
        if isinstance(outcome, Exception):
            reason = failure_reason(outcome)
            is_failed = self._table.finish(one.pair, reason=reason)
            node_metrics.count("lithify_node_jobs_total", "failed" if is_failed else "stopped")
            if is_failed:
                log.warning("job_failed", **_names(one), error=reason.error_class, reason=reason.message)
            else:
                log.info("job_stopped", **_names(one))
            return
        self._table.finish(one.pair, result=outcome)
        node_metrics.count("lithify_node_jobs_total", "finished")
        log.info("job_finished", **_names(one), seconds=round(seconds, 3), blocks=len(outcome.get("blocks", ())))


def failure_reason(error: Exception) -> FailureReason:
    """Return why a job failed: the error, and its object, section and offset where known."""
    return FailureReason(
        error_class=str(getattr(error, "error_class", type(error).__name__)),
        message=str(error),
        object=str(getattr(error, "object_name", "") or getattr(error, "key", "")),
        section=str(getattr(error, "section", "")),
        offset=int(getattr(error, "offset", -1)),
        build=VERSION,
    )


def _missing(one: HeldJob) -> ResultMissing:
    return ResultMissing(f"the merge ended without an outcome for {one.job}")


def _names(one: HeldJob) -> dict[str, object]:
    spec = one.spec
    return {
        "job": one.job,
        "tenant": spec.get("tenant", ""),
        "shard": spec.get("shard", -1),
        "level": spec.get("level", -1),
        "fence": spec.get("fence"),
    }
