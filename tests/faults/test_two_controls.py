"""Two control workers on two machines run every periodic task at the same moment, several times each.

Every task may run twice at once: of profiles, Prometheus blocks, tables and branches, each sample, row and entry is in
exactly one live place afterwards.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.faults import test_catalog_kills as catalogs
from tests.faults.stack import SETTLE_SECONDS, FaultStack
from tests.faults.test_block_kills import RESULTS, Tenant, adopted
from tests.faults.test_table_kills import Table
from tests.processes import wait_until

ROUNDS = 3
SEND_ALL = """
from tasks.beat import CONTROL_QUEUE, PERIODIC_JOBS, app
for job in PERIODIC_JOBS * 4:
    app.send_task(job.task, queue=CONTROL_QUEUE)
"""


def test_all_overdue_tasks_at_once_do_each_thing_once(
    fault_stack: FaultStack, s3_credentials: None, tmp_path: Path
) -> None:
    shard = fault_stack.new_shard()
    made: dict[str, tuple[int, int]] = json.loads(fault_stack.python("-c", catalogs.SCENE, "overdue"))
    _, branch = made["overdue"]
    table = Table(fault_stack)
    with adopted(fault_stack, "cortex", "overdue") as store:
        tenant = Tenant(fault_stack, store, tmp_path, "overdue")
        sending = fault_stack.in_background(lambda: send_everything(fault_stack))
        expected = fault_stack.write_segments(shard)
        catalogs.order(fault_stack, branch)
        tenant.put()
        table.adopt()
        sending.result()
        published = ("published",)
        wait_until(
            lambda: published in catalogs.outcomes(fault_stack, branch), "the branch is compacted", SETTLE_SECONDS
        )
        tenant.wait_until_settled()
        [(result,)] = tenant.rows(RESULTS)
        assert tenant.check_readers() == {result}
    assert fault_stack.check(shard, expected) == []
    table.check()
    seen = json.loads(fault_stack.python("-c", catalogs.LOOK, "overdue"))
    assert seen == {"overdue": catalogs.VISIBLE}
    assert fault_stack.fsck().keys() <= {"unknown"}


def send_everything(stack: FaultStack) -> None:
    """Make every periodic task due several times, in bursts."""
    for _ in range(ROUNDS):
        stack.python("-c", SEND_ALL)
