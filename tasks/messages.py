"""The messages a node receives. Each is an edge: names in, one call.

Delivered three times they do what they do once: the lease table decides what a message starts, and an echo or a
wake-up more is harmless. A process without a node (a shell, a test) ignores them.
"""

from __future__ import annotations

from celery import Task

from tasks.app import app
from tasks.queues import ECHO_TASK, MERGE_TASK, WAKE_TASK


@app.task(name=MERGE_TASK, bind=True)
def merge(self: Task, pairs: list[list[str]]) -> None:
    """Run those of these (job, token) pairs that wait for their start."""
    if self.app.node is not None:
        self.app.node.run([(job, token) for job, token in pairs])


@app.task(name=ECHO_TASK, bind=True)
def echo(self: Task) -> None:
    """A node's own message arrived: it hears its broker."""
    if self.app.courier is not None:
        self.app.courier.heard()


@app.task(name=WAKE_TASK, bind=True)
def wake(self: Task) -> None:
    """Poll now: somebody knows of new work."""
    if self.app.node is not None:
        self.app.node.wake()
