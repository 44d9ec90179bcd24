"""The Celery app of a compactor node: JSON only, threads, one message at a time, acknowledged early, no results.

A node has a queue of its own (``compactor.<node>``) for the messages it sends to itself; the shared queue
``compactor.wake`` carries wake-ups and nothing else. The app never imports Django, whatever the environment says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery import Celery
from kombu import Queue

from engine.settings.service import BrokerSettings
from tasks.queues import WAKE_QUEUE

if TYPE_CHECKING:
    from tasks.courier import CeleryCourier
    from tasks.identity import NodeIdentity
    from tasks.node import Node

SOCKET_SECONDS_MAX = 5.0
"""Timeout of one broker operation; shorter than a lease."""


class CompactorApp(Celery):
    """Celery app with references to the node of this process; each is None until it is created."""

    identity: NodeIdentity | None = None
    node: Node | None = None
    courier: CeleryCourier | None = None


def configure(app: Celery, broker_url: str) -> None:
    """Apply the settings that node, control and beat share."""
    app.conf.update(
        broker_url=broker_url,
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_acks_late=False,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "socket_timeout": SOCKET_SECONDS_MAX,
            "socket_connect_timeout": SOCKET_SECONDS_MAX / 2,
            # Publishing fails fast when the broker is unavailable. By default Kombu retries for many seconds, in which
            # no lease is renewed. Reconnecting of the consumer is not affected.
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0.1,
            "interval_max": 0.1,
        },
        worker_enable_prefetch_count_reduction=False,
        worker_send_task_events=False,
        # With remote control, every client of the broker could stop workers.
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        enable_utc=True,
    )


def _make_node_app() -> CompactorApp:
    # fixups=[]: Celery's Django fixup would import Django as soon as DJANGO_SETTINGS_MODULE is set.
    node_app = CompactorApp("lithify", fixups=[], set_as_current=False, include=["tasks.messages"])
    configure(node_app, BrokerSettings.read().BROKER_URL)
    node_app.conf.update(
        task_queues=[Queue(WAKE_QUEUE)],
        task_default_queue=WAKE_QUEUE,
        worker_pool="threads",
    )
    node_app.steps["worker"].add("tasks.bootsteps:NodeStep")
    return node_app


app = _make_node_app()
