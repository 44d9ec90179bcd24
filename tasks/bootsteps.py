"""Celery bootstep that runs a compactor node in a worker; it starts before the consumer and stops after it.

Celery starts its steps in order and waits for the broker in the last one, so a node polls while its broker is
unavailable. On SIGTERM the node releases its jobs first, then Celery stops its threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import bootsteps, signals
from celery.platforms import EX_FAILURE
from celery.worker import state
from kombu import Queue

from engine.settings.node import NodeSettings
from tasks.app import CompactorApp
from tasks.courier import CeleryCourier
from tasks.identity import NodeIdentity, claim_name
from tasks.merging import make_merger
from tasks.metrics import node_metrics, serve
from tasks.node import Node
from tasks.queues import own_queue
from tasks.service_client import ServiceClient


class NodeStep(bootsteps.StartStopStep):
    """Owns the node of this process: its name, its service client, its merger and its poll loop."""

    requires = ("celery.worker.components:Pool",)

    def create(self, parent: Any) -> None:
        """Claim no name before the start: a worker may be created only to be inspected."""
        self._node: Node | None = None
        self._stop_metrics: Callable[[], None] = lambda: None

    def start(self, parent: Any) -> None:
        """Claim a name, consume its queue and start the poll loop."""
        app: CompactorApp = parent.app
        settings = NodeSettings.read()
        self._identity: NodeIdentity = app.identity or claim_name(settings.LITHIFY_HOME, settings.NODE_NAME)
        queue = own_queue(self._identity.name)
        app.amqp.queues.select_add(Queue(queue, routing_key=queue))
        self._service = ServiceClient(settings.SERVICE_URL, settings.WORKER_CREDENTIAL)
        self._merger = make_merger(settings, self._identity.scratch)
        app.courier = CeleryCourier(app, queue)
        self._node = app.node = Node(
            settings, name=self._identity.name, service=self._service, courier=app.courier, merger=self._merger
        )
        app.courier.on_reconnected = self._node.wake
        self._service.on_response_lost = self._node.note_response_lost
        self._node.on_merger_died = _end_process
        signals.worker_shutting_down.connect(self._on_signal, weak=False)
        node_metrics.read("lithify_node_running_jobs", self._node.running_jobs)
        node_metrics.read("lithify_node_capacity", self._node.capacity)
        node_metrics.read("lithify_node_ready", self._node.is_ready)
        self._stop_metrics = serve(node_metrics)
        self._node.start()

    def close(self, parent: Any) -> None:
        """Release the jobs and report them to the service; the first step of a shutdown."""
        if self._node is not None:
            self._node.close()

    def stop(self, parent: Any) -> None:
        """Stop the merger, so that no thread of the pool waits for it."""
        if self._node is not None:
            self._stop_metrics()
            self._merger.stop()
            self._service.close()
            self._identity.release()

    def terminate(self, parent: Any) -> None:
        """Stop as in a warm shutdown: the service must know which jobs are released."""
        self.stop(parent)

    def _on_signal(self, **_: Any) -> None:
        if self._node is not None:
            self._node.request_stop()


def _end_process() -> None:
    """Stop Celery cleanly, with an exit code that makes a supervisor restart the node."""
    state.should_stop = EX_FAILURE  # type: ignore[assignment]  # celery-types: None only; Celery: an exit code too
