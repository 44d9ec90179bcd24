"""The main job end to end: segments in a bucket become final blocks through the real web, broker, node and Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.lanes.profiles.jobs import SourceObject
from engine.query.top_functions import FunctionValue, top_functions
from tasks.lanes.profiles.manifest import DELETE_OBJECTS_TASK
from tests.e2e.stack import BlockedObject, Stack
from tests.processes import Process, Processes, paused, wait_until
from tests.segments import SERVICES, TENANTS, make_segment, put_segment

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.xdist_group("stack")]

PROFILE_TYPE = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
START_MS = 1_760_000_000_000
LEASE_SECONDS = 3


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Processes() as processes:
        stack = Stack(tmp_path_factory.mktemp("stack"), processes)
        stack.set_policy(blocks_max=4, age_seconds=1, lease_seconds=LEASE_SECONDS)
        stack.manage("retention", "--keep-days", "0", "--why", "these segments are old")
        yield stack
        stack.close()


def add_segments(stack: Stack, shard: int, count: int) -> list[SourceObject]:
    """Put segments into the bucket and let the operator's command register them."""
    sources = write_segments(stack, shard, count)
    stack.manage("import_blocks", "--prefix", f"segments/{shard}/")
    return sources


def write_segments(stack: Stack, shard: int, count: int) -> list[SourceObject]:
    """Put segments into the bucket only."""
    return [
        put_segment(stack.store, *make_segment(START_MS + number * 500, shard=shard, seed=number))
        for number in range(count)
    ]


def block_one_source(stack: Stack, node: Process, shard: int) -> BlockedObject:
    """Give a node a job that it can begin and never finish."""
    with paused(node):
        sources = add_segments(stack, shard, 4)
        return BlockedObject(stack.store_url, sources[1].key)


def answers(stack: Stack, shard: int) -> dict[tuple[str, str], tuple[tuple[FunctionValue, ...], int]]:
    """The top functions of every service of the shard, and the sum of all samples."""
    blocks = stack.live_blocks(shard)
    found = {
        (tenant, service): top_functions(stack.store, blocks, tenant, service, PROFILE_TYPE, 10)
        for tenant in TENANTS
        for service in SERVICES
    }
    return {place: (answer.functions, answer.total_value) for place, answer in found.items()}


def test_segments_become_final_blocks_and_every_answer_stays_the_same(stack: Stack) -> None:
    shard = 1
    add_segments(stack, shard, 18)
    before = answers(stack, shard)
    stack.node()
    stack.wait_for_fix_point(shard)
    blocks = stack.live_blocks(shard)
    assert {meta.compaction_level for _, meta in blocks} == {3}
    assert len(blocks) < 18
    assert {meta.tenant for _, meta in blocks} == set(TENANTS)
    assert answers(stack, shard) == before
    assert all(total > 0 for _, total in before.values())
    states = dict(stack.rows("SELECT state, count(*) FROM profiles_block WHERE shard = ? GROUP BY state", shard))
    assert states["replaced"] >= 18
    tombstones = (
        "SELECT count(*) FROM profiles_tombstone t JOIN profiles_block b ON t.block_id = b.id WHERE b.shard = ?"
    )
    assert stack.rows(tombstones, shard) == [(states["replaced"],)]
    assert all(failures == 0 for _, failures in stack.jobs(shard))


def test_a_damaged_object_fails_only_its_own_job_with_the_location(stack: Stack) -> None:
    bad_shard, good_shard = 4, 5
    (source, *_) = write_segments(stack, bad_shard, 4)
    data = bytearray(stack.store.get(source.key))
    data[len(data) // 3] ^= 0xFF
    stack.store.put(source.key, bytes(data))
    add_segments(stack, good_shard, 4)
    stack.manage("import_blocks", "--prefix", f"segments/{bad_shard}/")
    stack.node()
    stack.wait_for_fix_point(good_shard)
    wait_until(lambda: [state for state, _ in stack.jobs(bad_shard)] == ["parked"], "the bad job is parked")
    reasons = [reason for _, reason in stack.attempts(bad_shard)]
    assert all(reason is not None and reason["object"] == source.key and reason["section"] for reason in reasons)
    assert len(stack.live_blocks(bad_shard)) == 4, "the sources stay live"


def test_the_control_worker_deletes_replaced_objects_and_no_others(stack: Stack) -> None:
    shard = 6
    stack.change("UPDATE schedule_limits SET cleanup_delay_seconds = 0")
    add_segments(stack, shard, 4)
    stack.node()
    stack.wait_for_fix_point(shard)
    control = stack.start_control()
    expected = {key for key, _ in stack.live_blocks(shard)}

    def is_clean() -> bool:
        stack.send_control_task(DELETE_OBJECTS_TASK)
        return {
            info.key for kind in ("segments", "blocks") for info in stack.store.list(f"{kind}/{shard}/")
        } == expected

    wait_until(is_clean, "only live objects are left")
    assert list(stack.store.list(f"lineage/{shard}/")), "what became of the deleted objects is written down"
    assert control.terminate() == 0


def test_a_node_killed_in_the_middle_of_a_job_is_replaced_by_another(stack: Stack) -> None:
    shard = 2
    node = stack.node()
    blocked = block_one_source(stack, node, shard)
    node.wait_for_line(rf'"shard": {shard}\b.*"job_started"')
    wait_until(lambda: stack.jobs(shard) == [("leased", 0)], "the job is leased")
    node.kill()
    blocked.release()
    other = stack.start_node(MERGE_ON="engine")
    stack.wait_for_fix_point(shard)
    assert [outcome for outcome, _ in stack.attempts(shard)][:2] == ["expired", "completed"]
    assert stack.jobs(shard)[0] == ("done", 1)
    assert {meta.compaction_level for _, meta in stack.live_blocks(shard)} == {3}
    assert other.terminate() == 0


def test_a_clean_stop_returns_the_job_at_once_and_counts_no_failure(stack: Stack) -> None:
    shard = 3
    node = stack.node()
    blocked = block_one_source(stack, node, shard)
    wait_until(lambda: stack.jobs(shard) == [("leased", 0)], "the job is leased")
    assert node.terminate() == 0
    assert stack.jobs(shard) == [("waiting", 0)]
    assert stack.attempts(shard) == [("released", None)]
    blocked.release()
