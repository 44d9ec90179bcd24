"""Metrics of a segment writer for ``/metrics``, kept in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from engine.core.metrics import SECONDS_BUCKETS, WRITER_METRICS
from webadmin.ingest.writer.gathering import Answer, WaitingPush

disable_created_metrics()  # The creation time of a counter has no use here.


class WriterMeasures:
    """Metrics of one writer. Not thread-safe: used on its event loop only."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._by_name: dict[str, Any] = {}
        for metric in WRITER_METRICS:
            if metric.kind == "histogram":
                made: Any = Histogram(
                    metric.name, metric.meaning, metric.labels, registry=self._registry, buckets=SECONDS_BUCKETS
                )
            else:
                kind = Counter if metric.kind == "counter" else Gauge
                made = kind(metric.name, metric.meaning, metric.labels, registry=self._registry)
            self._by_name[metric.name] = made

    def read(self, name: str, read: Callable[[], float]) -> None:
        """Set a gauge's callback, which is called at each scrape."""
        self._by_name[name].set_function(read)

    def count_push(self, push: WaitingPush, answer: Answer) -> None:
        """Count a push that was part of a flush, and observe its latency."""
        self._by_name["lithify_writer_pushes_total"].labels(answer.code).inc()
        self._by_name["lithify_writer_profiles_total"].inc(len(push.push.series))
        self._by_name["lithify_writer_received_bytes_total"].inc(push.size)
        self._by_name["lithify_writer_push_seconds"].observe(time.monotonic() - push.received_at)

    def count_refusal(self, code: str) -> None:
        """Count a push that was rejected before a flush."""
        self._by_name["lithify_writer_pushes_total"].labels(code).inc()

    def count_segment(self, outcome: str, size: int) -> None:
        """Count a segment; ``size`` is the bytes of its object, 0 if it was not written."""
        self._by_name["lithify_writer_segments_total"].labels(outcome).inc()
        self._by_name["lithify_writer_segment_bytes_total"].inc(size)

    def observe_flush(self, seconds: float) -> None:
        """Observe the seconds of a flush, from its first push to its last response."""
        self._by_name["lithify_writer_flush_seconds"].observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self._registry)
