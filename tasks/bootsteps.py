"""The part of a Celery worker that makes it a compactor node: starts before the consumer, stops after it.

Celery starts its parts in order and waits for the broker in the last one, so a node polls although its broker is
away. On SIGTERM the node gives its jobs back first, then Celery ends its threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import bootsteps, signals
from celery.platforms import EX_FAILURE
from celery.worker import state

from tasks.app import CompactorApp
from tasks.courier import CeleryCourier
from tasks.identity import NodeIdentity, claim_name
from tasks.merging import make_merger
from tasks.metrics import node_metrics, show
from tasks.node import Node
from tasks.queues import own_queue
from tasks.service_client import ServiceClient
from tasks.settings import NodeSettings


class NodeStep(bootsteps.StartStopStep):
    """Owns the node of this process: its name, its service client, its merger and its poll loop."""

    requires = frozenset({"celery.worker.components:Pool"})

    def create(self, parent: Any) -> NodeStep:
        """Nothing is made before the start: a worker that is only inspected must not claim a name."""
        self._node: Node | None = None
        self._stop_metrics: Callable[[], None] = lambda: None
        return self

    def start(self, parent: Any) -> None:
        """Claim a name, listen to its queue, and let the node poll."""
        app: CompactorApp = parent.app
        settings = NodeSettings.from_environment()
        self._identity: NodeIdentity = app.identity or claim_name(settings.home, settings.name)
        queue = own_queue(self._identity.name)
        app.amqp.queues.select_add(queue)
        self._service = ServiceClient(settings.service_url, settings.credential)
        self._merger = make_merger(settings, self._identity.scratch)
        app.courier = CeleryCourier(app, queue)
        self._node = app.node = Node(
            settings, name=self._identity.name, service=self._service, courier=app.courier, merger=self._merger
        )
        app.courier.on_heard = self._node.wake
        self._service.on_lost = self._node.answer_lost
        self._node.on_merger_died = _end_process
        signals.worker_shutting_down.connect(self._on_signal, weak=False)
        node_metrics.read("lithify_node_running_jobs", self._node.running_jobs)
        node_metrics.read("lithify_node_capacity", self._node.capacity)
        node_metrics.read("lithify_node_ready", self._node.is_ready)
        self._stop_metrics = show(node_metrics)
        self._node.start()

    def close(self, parent: Any) -> None:
        """First thing of a shutdown: give the jobs back and tell the service."""
        if self._node is not None:
            self._node.close()

    def stop(self, parent: Any) -> None:
        """Then end what merges, so that no thread of the pool is left waiting for it."""
        if self._node is not None:
            self._stop_metrics()
            self._merger.stop()
            self._service.close()
            self._identity.release()

    def terminate(self, parent: Any) -> None:
        """A cold shutdown skips nothing that the service should know."""
        self.stop(parent)

    def _on_signal(self, **_: Any) -> None:
        if self._node is not None:
            self._node.request_stop()


def _end_process() -> None:
    """Let Celery stop cleanly, with an exit code that tells a supervisor to start the node again."""
    state.should_stop = EX_FAILURE
