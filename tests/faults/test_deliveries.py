"""Each message delivered twice, to two web processes at once: polls, reports, additions, and Celery's messages."""

from __future__ import annotations

import json
from collections import Counter

from tests.faults.repeater import repeating
from tests.faults.stack import FaultStack


def test_everything_delivered_twice_is_done_once(fault_stack: FaultStack) -> None:
    shard = fault_stack.new_shard()
    fault_stack.service.doubles.set()
    try:
        with repeating(fault_stack.broker_url) as repeater:
            expected = fault_stack.write_segments(shard, 16)
            fault_stack.check(shard, expected)
    finally:
        fault_stack.service.doubles.clear()
    assert {queue.partition(".")[0] for queue in repeater.repeated} == {"compactor", "control"}
    assert set(started(fault_stack, shard).values()) == {1}, "a message that came twice began its job once"
    completed = fault_stack.rows("SELECT count(*) FROM schedule_job WHERE shard = %s", shard)[0][0]
    assert fault_stack.attempts(shard)["completed"] == completed, "each job was completed once"


def started(stack: FaultStack, shard: int) -> Counter[tuple[str, int]]:
    """Count the beginnings of each run, by job and token."""
    events = [
        json.loads(line.partition("|")[2]) for line in stack.log.getvalue().splitlines() if '"job_started"' in line
    ]
    return Counter((event["job"], event["fence"]) for event in events if event["shard"] == shard)
