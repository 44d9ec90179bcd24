"""What node, control and beat show of themselves at METRICS_PORT: counted where it happens, gone with the process.

METRICS_PORT          port of the metrics of this process (default: none are shown)
METRICS_HOST          address it listens on (default 127.0.0.1)

A port that is taken does not stop the process: metrics are worth less than merges.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from wsgiref.simple_server import make_server

import structlog
from celery import signals
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, make_wsgi_app

from engine.core.metrics import BEAT_METRICS, CONTROL_METRICS, NODE_METRICS, SECONDS_BUCKETS, Metric
from tasks.metrics_server import MetricsServer, QuietHandler

DEFAULT_HOST = "127.0.0.1"

log = structlog.get_logger(__name__)
disable_created_metrics()  # when a counter was made is no measurement of ours


class ProcessMetrics:
    """The metrics of one process, by name; ``registry`` is what is shown."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self.registry = CollectorRegistry()
        self._by_name = {metric.name: self._make(metric) for metric in metrics}

    def _make(self, metric: Metric) -> Any:
        if metric.kind == "histogram":
            return Histogram(
                metric.name, metric.meaning, metric.labels, registry=self.registry, buckets=SECONDS_BUCKETS
            )
        kind = Counter if metric.kind == "counter" else Gauge
        return kind(metric.name, metric.meaning, metric.labels, registry=self.registry)

    def count(self, name: str, *labels: str, amount: float = 1) -> None:
        """Add to a counter."""
        self._labelled(name, labels).inc(amount)

    def observe(self, name: str, *labels: str, value: float) -> None:
        """Note how long something took."""
        self._labelled(name, labels).observe(value)

    def read(self, name: str, read: Callable[[], float]) -> None:
        """Let a gauge be read whenever it is asked for."""
        self._by_name[name].set_function(read)

    def _labelled(self, name: str, labels: tuple[str, ...]) -> Any:
        metric = self._by_name[name]
        return metric.labels(*labels) if labels else metric


node_metrics = ProcessMetrics(NODE_METRICS)
control_metrics = ProcessMetrics(CONTROL_METRICS)
beat_metrics = ProcessMetrics(BEAT_METRICS)


def show(metrics: ProcessMetrics, environment: Mapping[str, str] = os.environ) -> Callable[[], None]:
    """Serve the metrics if METRICS_PORT says where; return what ends that."""
    text = environment.get("METRICS_PORT", "")
    if not text:
        return lambda: None
    try:
        host = environment.get("METRICS_HOST") or DEFAULT_HOST
        server = make_server(host, int(text), make_wsgi_app(metrics.registry), MetricsServer, QuietHandler)
    except (OSError, ValueError, OverflowError) as error:
        advice = "set METRICS_PORT to a free port, and METRICS_HOST to an address of this machine"
        log.error("metrics_not_shown", port=text, reason=str(error), advice=advice)
        return lambda: None
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    log.info("metrics_shown", host=host, port=server.server_address[1])

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


class TaskCounter:
    """Counts the tasks of a control worker by Celery's signals."""

    def __init__(self) -> None:
        self._started: dict[str, float] = {}

    def connect(self) -> None:
        """Begin to count."""
        signals.task_prerun.connect(self._begin, weak=False)
        signals.task_postrun.connect(self._end, weak=False)

    def _begin(self, task_id: str, **_: Any) -> None:
        self._started[task_id] = time.monotonic()

    def _end(self, task_id: str, task: Any, state: str | None = None, **_: Any) -> None:
        started = self._started.pop(task_id, None)
        control_metrics.count("lithify_control_tasks_total", task.name, "succeeded" if state == "SUCCESS" else "failed")
        if started is not None:
            control_metrics.observe("lithify_control_task_seconds", task.name, value=time.monotonic() - started)


def count_sent(sender: str, **_: Any) -> None:
    """Count a task that beat sent."""
    beat_metrics.count("lithify_beat_tasks_sent_total", sender)


def show_in_control_and_beat() -> None:
    """Connect to Celery's signals: whichever of the two this process becomes shows its metrics."""

    def control(**_: Any) -> None:
        TaskCounter().connect()
        show(control_metrics)

    def beat(**_: Any) -> None:
        signals.before_task_publish.connect(count_sent, weak=False)
        show(beat_metrics)

    signals.worker_init.connect(control, weak=False)
    signals.beat_init.connect(beat, weak=False)
