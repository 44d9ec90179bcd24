"""Celery tasks of a compactor node: merge, echo and wake.

Each task may be delivered more than once. The lease table starts a job once, and a repeated echo or wake-up has no
further effect. In a process without a node (a shell, a test) the tasks do nothing.
"""

from __future__ import annotations

from tasks.app import app
from tasks.queues import ECHO_TASK, MERGE_TASK, WAKE_TASK


@app.task(name=MERGE_TASK)
def merge(pairs: list[list[str]]) -> None:
    """Run those of these (job, token) pairs that are assigned and not yet started."""
    if app.node is not None:
        app.node.run([(job, token) for job, token in pairs])


@app.task(name=ECHO_TASK)
def echo() -> None:
    """Note that a message of this node arrived: the broker delivers."""
    if app.courier is not None:
        app.courier.note_echo()


@app.task(name=WAKE_TASK)
def wake() -> None:
    """Poll now: new work is known."""
    if app.node is not None:
        app.node.wake()
