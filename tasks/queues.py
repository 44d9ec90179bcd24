"""The names of a node's queues and messages."""

from __future__ import annotations

WAKE_QUEUE = "compactor.wake"
MERGE_TASK = "compactor.merge"
ECHO_TASK = "compactor.echo"
WAKE_TASK = "compactor.wake"


def own_queue(node_name: str) -> str:
    """The queue of one node."""
    return f"compactor.{node_name}"
