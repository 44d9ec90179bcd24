"""Names of the queues and Celery tasks of a node."""

from __future__ import annotations

WAKE_QUEUE = "compactor.wake"
MERGE_TASK = "compactor.merge"
ECHO_TASK = "compactor.echo"
WAKE_TASK = "compactor.wake"


def own_queue(node_name: str) -> str:
    """Return the name of the queue of one node."""
    return f"compactor.{node_name}"
