"""Where a bucket does not allow parts, no group is cut, and parts that are there are merged."""

from __future__ import annotations

from engine.lanes.tsdb.plan.model import SlotState
from engine.lanes.tsdb.plan.policy import HOUR_MS, IntervalPolicy
from tests.engine.lanes.tsdb.plan.test_default import block, plan, told


def test_no_group_is_cut_where_parts_are_not_allowed() -> None:
    policy = IntervalPolicy(partition_series=4, allows_partitions=False)
    large = [block(name, 0, 2, series=3) for name in "ab"]
    later = [block("c", 2, 4, series=1), block("d", 2, 4, series=1)]
    found = plan([*large, *later], policy=policy)
    assert told(found) == ["2-4: c d"]
    assert {slot.start_ms: slot.state for slot in found.slots if slot.range_ms == 2 * HOUR_MS} == {
        0: SlotState.TOO_LARGE,
        2 * HOUR_MS: SlotState.READY,
    }
    assert "its group would need 2 partitions by series" in found.explain("a")
    assert found.compactions == 1, "nothing is expected of what is not planned"
    by_index = IntervalPolicy(partition_index_bytes=10, allows_partitions=False)
    assert told(plan([block(name, 0, 2, index_bytes=6) for name in "ab"], policy=by_index)) == []
    assert told(plan(large, policy=IntervalPolicy(partition_series=6, allows_partitions=False))) == ["0-2: a b"]


def test_parts_are_merged_into_one_block_where_they_are_not_allowed() -> None:
    halves = [block(f"h{n}", 0, 2, level=2, partition=n, partitions=2) for n in range(2)]
    assert told(plan(halves)) == []
    [group] = plan(halves, policy=IntervalPolicy(allows_partitions=False)).groups
    assert ([one.ulid for one in group.blocks], group.partitions) == (["h0", "h1"], 1)
