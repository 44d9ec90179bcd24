"""Two control workers on two machines run every periodic task at the same moment, several times each.

Every task may run twice at once: of profiles, Prometheus blocks, tables and branches, each sample, row and entry is in
exactly one live place afterwards.
"""

from __future__ import annotations

from pathlib import Path

from tests.faults.all_lanes import all_lanes
from tests.faults.stack import FaultStack

ROUNDS = 3
SEND_ALL = """
from tasks.beat import CONTROL_QUEUE, PERIODIC_JOBS, app
for job in PERIODIC_JOBS * 4:
    app.send_task(job.task, queue=CONTROL_QUEUE)
"""


def test_all_overdue_tasks_at_once_do_each_thing_once(
    fault_stack: FaultStack, s3_credentials: None, tmp_path: Path
) -> None:
    with all_lanes(fault_stack, tmp_path, "overdue") as lanes:
        sending = fault_stack.in_background(lambda: send_everything(fault_stack))
        lanes.begin()
        sending.result()
        lanes.check()
    assert fault_stack.fsck().keys() <= {"unknown"}


def send_everything(stack: FaultStack) -> None:
    """Make every periodic task due several times, in bursts."""
    for _ in range(ROUNDS):
        stack.python("-c", SEND_ALL)
