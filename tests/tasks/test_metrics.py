"""What node, control and beat show of themselves, at a port or not at all."""

from __future__ import annotations

import contextlib
import socket
import urllib.request
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.core.metrics import BEAT_METRICS, CONTROL_METRICS, NODE_METRICS, Metric
from tasks import metrics as process_metrics
from tasks.metrics import ProcessMetrics, TaskCounter, count_sent, serve
from tasks.metrics_server import MetricsServer, QuietHandler


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def scraped(port: int) -> dict[str, object]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return {family.name: family for family in text_string_to_metric_families(answer.read().decode())}


@pytest.mark.parametrize("listed", [NODE_METRICS, CONTROL_METRICS, BEAT_METRICS])
def test_a_port_shows_what_is_listed(listed: tuple[Metric, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("METRICS_PORT", str(port))
    metrics = ProcessMetrics(listed)
    stop = serve(metrics)
    try:
        families = scraped(port)
    finally:
        stop()
    assert {metric.name.removesuffix("_total"): metric.kind for metric in listed} == {
        name: family.type for name, family in families.items()
    }


def test_connections_without_a_request_are_few_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MetricsServer, "connection_seconds", 0.5)
    port = free_port()
    monkeypatch.setenv("METRICS_PORT", str(port))
    stop = serve(ProcessMetrics(NODE_METRICS))
    slow = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(2 * MetricsServer.connections_max)]
    try:
        for connection in slow:
            with contextlib.suppress(ConnectionError):  # those beyond the bound
                connection.send(b"GET /metrics HTTP/1.1\r\n")
                assert connection.recv(1) == b""
        assert scraped(port)
    finally:
        for connection in slow:
            connection.close()
        stop()


def test_without_a_port_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("METRICS_PORT", raising=False)
    assert serve(ProcessMetrics(NODE_METRICS))() is None


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_addresses_of_both_kinds_are_listened_at(host: str, family: socket.AddressFamily) -> None:
    server = MetricsServer((host, 0), QuietHandler, bind_and_activate=False)
    server.server_close()
    assert server.address_family == family


@pytest.mark.parametrize("port", ["x", "-1", "99999999"])
def test_a_port_that_makes_no_sense_does_not_stop_the_process(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METRICS_PORT", port)
    assert serve(ProcessMetrics(NODE_METRICS))() is None


def test_a_port_that_is_taken_does_not_stop_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setenv("METRICS_PORT", str(other.getsockname()[1]))
        assert serve(ProcessMetrics(NODE_METRICS))() is None


def test_tasks_and_what_beat_sent_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    control, beat = ProcessMetrics(CONTROL_METRICS), ProcessMetrics(BEAT_METRICS)
    monkeypatch.setattr(process_metrics, "control_metrics", control)
    monkeypatch.setattr(process_metrics, "beat_metrics", beat)
    counter, task = TaskCounter(), SimpleNamespace(name="control.x")
    for number, state in enumerate(("SUCCESS", "FAILURE", "SUCCESS")):
        counter._begin(task_id=str(number))
        counter._end(task_id=str(number), task=task, state=state)
    count_sent(sender="control.x")

    def value(metrics: ProcessMetrics, name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    assert value(control, "lithify_control_tasks_total", task="control.x", outcome="succeeded") == 2
    assert value(control, "lithify_control_tasks_total", task="control.x", outcome="failed") == 1
    assert value(control, "lithify_control_task_seconds_count", task="control.x") == 3
    assert value(beat, "lithify_beat_tasks_sent_total", task="control.x") == 1
