"""Metrics of node, control and beat, counted in the process and served at METRICS_PORT.

A port in use does not stop the process: merges matter more than metrics.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import make_server

import structlog
from celery import signals
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, make_wsgi_app

from engine.core.metrics import BEAT_METRICS, CONTROL_METRICS, NODE_METRICS, SECONDS_BUCKETS, Metric
from engine.settings.base import BadSetting
from engine.settings.service import MetricsSettings
from tasks.metrics_server import MetricsServer, QuietHandler

log = structlog.get_logger(__name__)
disable_created_metrics()  # the creation time of a counter is of no use here


class ProcessMetrics:
    """The metrics of one process, by name; ``registry`` is served."""

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
        """Increase a counter by ``amount``."""
        self._labelled(name, labels).inc(amount)

    def observe(self, name: str, *labels: str, value: float) -> None:
        """Record a duration of ``value`` seconds in a histogram."""
        self._labelled(name, labels).observe(value)

    def read(self, name: str, read: Callable[[], float]) -> None:
        """Set the function that returns the value of a gauge at each scrape."""
        self._by_name[name].set_function(read)

    def _labelled(self, name: str, labels: tuple[str, ...]) -> Any:
        metric = self._by_name[name]
        return metric.labels(*labels) if labels else metric


node_metrics = ProcessMetrics(NODE_METRICS)
control_metrics = ProcessMetrics(CONTROL_METRICS)
beat_metrics = ProcessMetrics(BEAT_METRICS)


def serve(metrics: ProcessMetrics) -> Callable[[], None]:
    """Serve the metrics if METRICS_PORT is set; return a function that stops the server."""
    try:
        settings = MetricsSettings.read()
        host, port = settings.METRICS_HOST, settings.METRICS_PORT
        if port is None:
            return lambda: None
        server = make_server(host, port, make_wsgi_app(metrics.registry), MetricsServer, QuietHandler)
    except (BadSetting, OSError) as error:
        advice = "set METRICS_PORT to a free port, and METRICS_HOST to an address of this machine"
        log.error("metrics_not_served", reason=str(error), advice=advice)
        return lambda: None
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    log.info("metrics_served", host=host, port=server.server_address[1])

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


class TaskCounter:
    """Counts the tasks of a control worker from Celery's signals."""

    def __init__(self) -> None:
        self._started: dict[str, float] = {}

    def connect(self) -> None:
        """Start counting."""
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


def serve_in_control_and_beat() -> None:
    """Connect to Celery's signals: the process serves the metrics of the role, control or beat, that it starts."""

    def control(**_: Any) -> None:
        TaskCounter().connect()
        serve(control_metrics)

    def beat(**_: Any) -> None:
        signals.before_task_publish.connect(count_sent, weak=False)
        serve(beat_metrics)

    signals.worker_init.connect(control, weak=False)
    signals.beat_init.connect(beat, weak=False)
