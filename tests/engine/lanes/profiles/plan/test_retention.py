"""Retention: rows C1 to C16 of the behaviour sheet, and what must hold for any rules and any data (invariant 21)."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lanes.profiles.plan.retention import (
    DAY_MS,
    KEEP_DEFAULT_MS,
    SLICES_PER_RUN,
    RetentionPolicy,
    RetentionSlice,
    is_expired,
    plan_retention,
)

HOUR_MS = 3600 * 1000
PARTITION_MS = 6 * HOUR_MS
NOW_MS = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1000)


def part(tenant: str, created: float, newest: float, *, shard: int = 1, in_segments: bool = False) -> RetentionSlice:
    """A slice by hours from now: when its blocks were made, and its newest data."""
    created_ms = NOW_MS + round(created * HOUR_MS)
    return RetentionSlice(
        partition_start_ms=created_ms - created_ms % PARTITION_MS,
        partition_ms=PARTITION_MS,
        tenant=tenant,
        shard=shard,
        max_time_ms=NOW_MS + round(newest * HOUR_MS),
        in_segments=in_segments,
    )


def policy(default: float = 0, *, grace: float = 1, held: frozenset[str] = frozenset(), **hours: float):
    """Rules in hours."""
    return RetentionPolicy(
        default_ms=round(default * HOUR_MS),
        tenants={tenant: round(keep * HOUR_MS) for tenant, keep in hours.items()},
        held=held,
        grace_ms=round(grace * HOUR_MS),
    )


def expired(rules: RetentionPolicy, *parts: RetentionSlice, count_max: int = SLICES_PER_RUN) -> list[RetentionSlice]:
    return list(plan_retention(parts, rules, now_ms=NOW_MS, count_max=count_max).expired)


@pytest.mark.row("C1")
def test_without_rules_nothing_expires() -> None:
    assert expired(policy(), part("t1", -23, -20)) == []


@pytest.mark.row("C2")
def test_without_a_default_only_tenants_with_their_own_rule_lose_data() -> None:
    own = [part("t1", -23, -20), part("t1", -22, -18, shard=2)]
    assert expired(policy(t1=12), *own, part("t2", -25, -22)) == own


@pytest.mark.row("C3")
def test_a_partition_is_kept_until_its_grace_period_is_over() -> None:
    assert expired(policy(24, t2=6), part("t2", -9, -8)) == []


@pytest.mark.row("C4")
def test_a_shorter_rule_of_the_tenant_overrides_the_default() -> None:
    short = part("t2", -12, -10)
    assert expired(policy(24, t2=4), part("t1", -18, -16), short) == [short]


@pytest.mark.row("C5")
def test_a_longer_rule_of_the_tenant_overrides_the_default() -> None:
    assert expired(policy(12, t1=24), part("t1", -16, -18)) == []


@pytest.mark.row("C6")
def test_data_in_segments_expires_by_the_rule_of_its_tenant() -> None:
    kept = [part("t1", -30, -20), part("t1", -30, -20, in_segments=True)]
    gone = part("t2", -30, -20)
    assert expired(policy(12, t1=48), *kept, gone) == [gone]


@pytest.mark.row("C7")
def test_recent_data_in_an_old_partition_is_kept() -> None:
    assert expired(policy(12), part("t1", -30, -1)) == []


@pytest.mark.row("C8")
def test_partitions_of_segments_alone_expire() -> None:
    only = part("t1", -30, -20, in_segments=True)
    assert expired(policy(12), only) == [only]


@pytest.mark.row("C9")
def test_a_run_is_capped_and_counts_what_is_left_for_later() -> None:
    parts = [part("t1", -30, -20, shard=shard) for shard in (1, 2, 3)]
    plan = plan_retention(parts, policy(12), now_ms=NOW_MS, count_max=2)
    assert (list(plan.expired), plan.left_for_later) == (parts[:2], 1)


@pytest.mark.row("C10")
def test_a_retention_of_0_keeps_data_for_ever() -> None:
    short = part("short", -30, -20)
    parts = (part("infinite", -180 * 24, -180 * 24 + 1), short, part("other", -20, -18))
    assert expired(policy(24, short=12, infinite=0), *parts) == [short]


@pytest.mark.row("C11", "C12")
def test_a_maximum_time_of_0_never_expires() -> None:
    assert expired(policy(12, t1=0), part("t1", -23, -20)) == []
    assert expired(policy(0), part("t1", -23, -20)) == []


@pytest.mark.row("C13")
def test_data_exactly_as_old_as_the_rule_is_kept() -> None:
    rules = policy(24, grace=0)
    assert expired(rules, part("t1", -26, -24)) == []
    assert len(expired(rules, part("t1", -26.1, -24.001))) == 1


@pytest.mark.row("C16")
def test_a_newer_expired_partition_does_not_expire_an_older_one() -> None:
    older, newer = part("t1", -40, -1), part("t1", -30, -20)
    assert expired(policy(12), older, newer) == [newer]


def test_31_days_are_the_default_and_a_hold_outweighs_every_rule() -> None:
    assert RetentionPolicy().default_ms == KEEP_DEFAULT_MS == 31 * DAY_MS
    old = part("t1", -90 * 24, -89 * 24)
    assert expired(RetentionPolicy(), old) == [old]
    assert expired(RetentionPolicy(held=frozenset({"t1"})), old) == []


parts_strategy = st.builds(
    part,
    st.sampled_from(["a", "b", "c"]),
    st.integers(-100, 0),
    st.integers(-100, 5),
    shard=st.integers(1, 3),
    in_segments=st.booleans(),
)
policies = st.builds(
    RetentionPolicy,
    default_ms=st.integers(0, 60).map(lambda hours: hours * HOUR_MS),
    tenants=st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 60).map(lambda hours: hours * HOUR_MS)),
    held=st.frozensets(st.sampled_from(["a", "c"])),
    grace_ms=st.integers(0, 12).map(lambda hours: hours * HOUR_MS),
)


@pytest.mark.row("invariant-21")
@given(parts=st.lists(parts_strategy, max_size=20), rules=policies)
def test_expired_data_is_older_than_its_rule_and_in_a_past_partition(
    parts: list[RetentionSlice], rules: RetentionPolicy
) -> None:
    gone = expired(rules, *parts, count_max=100)
    for each in parts:
        keep_ms = rules.tenants.get(each.tenant, rules.default_ms)
        marker_ms = NOW_MS - keep_ms
        end_ms = each.partition_start_ms + each.partition_ms + rules.grace_ms
        may_go = keep_ms > 0 and each.tenant not in rules.held and each.max_time_ms < marker_ms and end_ms <= marker_ms
        assert (each in gone) == may_go


@pytest.mark.row("invariant-22")
@given(parts=st.lists(parts_strategy, max_size=20), rules=policies, seed=st.integers())
def test_the_order_of_parts_has_no_effect(parts: list[RetentionSlice], rules: RetentionPolicy, seed: int) -> None:
    shuffled = random.Random(seed).sample(parts, len(parts))
    assert expired(rules, *shuffled, count_max=5) == expired(rules, *parts, count_max=5)


@pytest.mark.row("invariant-27")
@given(each=parts_strategy, rules=policies, other=parts_strategy)
def test_the_rule_of_a_tenant_never_affects_data_of_another(
    each: RetentionSlice, rules: RetentionPolicy, other: RetentionSlice
) -> None:
    changed = replace(rules, tenants={**rules.tenants, other.tenant: HOUR_MS})
    if each.tenant != other.tenant:
        assert is_expired(each, changed, now_ms=NOW_MS) == is_expired(each, rules, now_ms=NOW_MS)


@given(parts=st.lists(parts_strategy, max_size=10), rules=policies)
def test_no_part_goes_that_is_younger_than_the_newest_marker(
    parts: list[RetentionSlice], rules: RetentionPolicy
) -> None:
    newest_ms = rules.newest_marker_ms(NOW_MS)
    for each in expired(rules, *parts):
        assert newest_ms is not None
        assert each.partition_start_ms + each.partition_ms + rules.grace_ms <= newest_ms
