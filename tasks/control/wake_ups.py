"""Wake-ups: nodes poll for new jobs at once, not when their pause ends."""

from __future__ import annotations

import structlog
from celery import Celery
from kombu.exceptions import OperationalError

from tasks.queues import WAKE_QUEUE, WAKE_TASK

WAKE_UPS_MAX = 32
"""Messages per call: each wakes one node, and a node takes as many jobs as it has room for."""
EXPIRES_SECONDS = 30
"""A wake-up that no node has read by then is dropped: the node that reads it late has polled since."""

log = structlog.get_logger(__name__)


def wake_nodes(app: Celery, jobs: int) -> None:
    """Send a wake-up for each new job to the queue that nodes share. Without a broker, nodes poll as always."""
    if not jobs:
        return
    try:
        with app.connection_for_write() as connection:
            for _ in range(min(jobs, WAKE_UPS_MAX)):
                app.send_task(
                    WAKE_TASK, queue=WAKE_QUEUE, expires=EXPIRES_SECONDS, ignore_result=True, connection=connection
                )
    except OperationalError as error:
        log.warning("nodes_not_woken", jobs=jobs, reason=str(error))
