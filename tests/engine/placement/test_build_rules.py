"""Rules from statistics, and the round that publishes them (sheet, 6 and 10; L16 to L26; property 14)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.formats.profile_block.model import BlockMeta, DatasetMeta
from engine.placement.build_rules import PlacementSettings, build_rules, restore_states
from engine.placement.errors import BadDocument, LimitsRefused, PinRefused, StaleDocument
from engine.placement.model import DatasetOverride, DatasetRule, LoadBalancing, PlacementRules, TenantLimits
from engine.placement.publication import (
    HISTORY_MAX,
    RULES_KEY,
    RulesReader,
    load_version,
    publish_rules,
    trim_history,
)
from engine.placement.signatures import SignedStore
from engine.placement.statistics import DatasetStatistics, PlacementStatistics, ShardUsage
from engine.storage.local import LocalStore
from engine.storage.model import ObjectInfo, ObjectStore, StorageError

UNIT = 128 * 1024
NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000
RANDOM, STABLE, DYNAMIC = LoadBalancing.ROUND_ROBIN, LoadBalancing.FINGERPRINT, LoadBalancing.DYNAMIC


def rule(shards: int, choice: LoadBalancing = STABLE, at_ms: int = NOW_MS) -> DatasetRule:
    return DatasetRule(tenant_shards=0, dataset_shards=shards, load_balancing=choice, updated_at_ms=at_ms)


def statistics(at_ms: int, **units: float) -> PlacementStatistics:
    """Usages in units by tenant; each has one dataset of one shard."""
    return PlacementStatistics(
        created_at_ms=at_ms,
        datasets=tuple(
            DatasetStatistics(
                tenant=tenant,
                dataset="d",
                shards=(ShardUsage(shard=1, owner="w", usage=int(usage * UNIT)),),
                deviation=0.0,
            )
            for tenant, usage in units.items()
        ),
    )


L24_LIMITS = {
    "a": TenantLimits(tenant_shards=10),
    "b": TenantLimits(load_balancing=STABLE),
    "c": TenantLimits(),
    "d": TenantLimits(dataset_shards_min=5, load_balancing=RANDOM),
}
L24_RULES = PlacementRules(
    version=7,
    created_at_ms=NOW_MS,
    datasets={("a", "d"): rule(5, RANDOM), ("b", "d"): rule(3, RANDOM), ("c", "d"): rule(3)},
)
L24_SETTINGS = PlacementSettings(tenants=L24_LIMITS)


def l24() -> tuple[PlacementRules, dict]:
    found = statistics(NOW_MS + 15_000, a=4.5, b=3, c=2.5, d=1)
    return build_rules(L24_RULES, restore_states(L24_RULES), found, L24_SETTINGS)


@pytest.mark.row("L24")
def test_limits_and_strategies_follow_usage_and_configuration() -> None:
    rules, _ = l24()
    assert [found.dataset_shards for found in rules.datasets.values()] == [5, 4, 3, 5]
    assert [found.load_balancing for found in rules.datasets.values()] == [RANDOM, STABLE, STABLE, RANDOM]
    assert [found.tenant_shards for found in rules.datasets.values()] == [10, 0, 0, 0]
    assert (rules.version, rules.created_at_ms) == (8, NOW_MS + 15_000)


@pytest.mark.row("L25")
def test_a_dataset_without_statistics_keeps_its_rule() -> None:
    before, states = l24()
    after, _ = build_rules(before, states, statistics(NOW_MS + 30_000, a=4.5), L24_SETTINGS)
    assert sorted(after.datasets) == sorted(before.datasets)
    assert [after.datasets[name, "d"] for name in "bcd"] == [before.datasets[name, "d"] for name in "bcd"]


@pytest.mark.row("L26")
def test_rules_without_statistics_expire() -> None:
    before, states = l24()
    soon, _ = build_rules(before, states, statistics(NOW_MS + 15 * MINUTE_MS), L24_SETTINGS)
    assert len(soon.datasets) == 4
    late, left = build_rules(before, states, statistics(NOW_MS + 15_000 + 15 * MINUTE_MS), L24_SETTINGS)
    assert (late.datasets, left) == ({}, {})


def test_an_override_holds_with_and_without_statistics_and_ends_without_a_trace() -> None:
    pinned = DatasetOverride(dataset_shards=9, load_balancing=RANDOM, shards=(3, 1))
    settings = replace(L24_SETTINGS, overrides={("a", "d"): pinned, ("new", "d"): DatasetOverride(tenant_shards=2)})
    rules, states = build_rules(L24_RULES, restore_states(L24_RULES), statistics(NOW_MS + 1, a=4.5), settings)
    found = rules.rule("a", "d")
    assert (found.dataset_shards, found.load_balancing, found.shards) == (9, RANDOM, (3, 1))
    assert (rules.rule("new", "d").tenant_shards, rules.rule("new", "d").dataset_shards) == (2, 1)
    after, _ = build_rules(rules, states, statistics(NOW_MS + 2, a=4.5), L24_SETTINGS)
    assert (after.rule("a", "d").dataset_shards, after.rule("a", "d").shards) == (5, ())
    assert ("new", "d") not in after.datasets


@pytest.mark.parametrize("shards", [(0,), (13,), (1, 1)])
def test_pins_to_shards_that_do_not_exist_are_refused(shards: tuple[int, ...]) -> None:
    with pytest.raises(PinRefused):
        DatasetOverride(shards=shards).check(12)
    DatasetOverride(shards=(1, 12)).check(12)
    with pytest.raises(LimitsRefused):
        DatasetOverride(dataset_shards=-1).check(12)


@pytest.mark.row("placement-weakness-17.11")
def test_a_tenant_limit_that_binds_is_shown() -> None:
    assert DatasetRule(tenant_shards=2, dataset_shards=5).is_capped()
    assert not DatasetRule(tenant_shards=0, dataset_shards=5).is_capped()


@pytest.mark.parametrize(
    "fields",
    [
        {"dataset_shards_min": 5, "dataset_shards_max": 4},
        {"dataset_shards_min": 0},
        {"tenant_shards": -1},
        {"unit_bytes": 0},
        {"decay_window_s": 0.0},
        {"burst_window_s": float("nan")},
    ],
)
def test_limits_that_contradict_each_other_are_refused(fields: dict) -> None:
    with pytest.raises(LimitsRefused):
        TenantLimits(**fields).check()


class FailingStore(LocalStore):
    """Fails the operations that a test names, and counts writes."""

    fails_on: frozenset[str] = frozenset()
    writes = 0

    def get(self, key: str) -> bytes:
        if "get" in self.fails_on:
            raise StorageError("get", key, "away")
        return super().get(key)

    def put(self, key: str, data: bytes) -> ObjectInfo:
        if f"put {key}" in self.fails_on:
            raise StorageError("put", key, "away")
        self.writes += 1
        return super().put(key, data)


@pytest.fixture
def store(tmp_path: Path) -> FailingStore:
    return FailingStore(tmp_path)


def signed(store: ObjectStore) -> SignedStore:
    return SignedStore(store, ["key"])


def segment(size: int = 10 * UNIT) -> BlockMeta:
    meta = DatasetMeta(
        tenant="a", name="d", min_time_ms=0, max_time_ms=0, table_of_contents=(0, 1, 2), size=size, labels=()
    )
    return BlockMeta(
        id="01JKT3DJRETWN25NKEFZNEP1V0",
        tenant="",
        shard=1,
        compaction_level=0,
        min_time_ms=0,
        max_time_ms=0,
        datasets=(meta,),
        string_table=(),
        created_by="w",
    )


@pytest.mark.row("L17", "placement-property-14")
def test_older_rules_are_ignored_and_equal_versions_are_applied_again(store: FailingStore) -> None:
    publish_rules(signed(store), L24_RULES)
    reader = RulesReader(signed(store))
    assert reader.start() == L24_RULES
    older = replace(L24_RULES, created_at_ms=NOW_MS - 1, version=99)
    assert (reader.offer(older), reader.offer(L24_RULES), reader.rules) == (False, True, L24_RULES)
    signed(store).put(RULES_KEY, b"\xff")
    with pytest.raises(BadDocument):
        reader.refresh()
    assert reader.rules == L24_RULES


@pytest.mark.row("L18")
def test_a_reader_starts_with_empty_rules_and_applies_the_first_it_reads(store: FailingStore) -> None:
    reader = RulesReader(signed(store))
    assert reader.start() == PlacementRules()
    publish_rules(
        signed(store), replace(L24_RULES, created_at_ms=1)
    )  # in the origin these would have to be newer than now
    assert reader.refresh().version == 7


@pytest.mark.row("L19")
@pytest.mark.parametrize("data", [b"\xff\xff", b"", b"\x28\x09"])
def test_a_reader_does_not_start_on_rules_it_cannot_read(store: FailingStore, data: bytes) -> None:
    signed(store).put(RULES_KEY, data)
    with pytest.raises(BadDocument):
        RulesReader(signed(store)).start()
    store.fails_on = frozenset({"get"})
    with pytest.raises(StorageError):
        RulesReader(signed(store)).start()


@pytest.mark.row("placement-weakness-17.14")
def test_two_publishers_of_one_version_are_detected_and_versions_kept(store: FailingStore) -> None:
    publish_rules(signed(store), L24_RULES)
    publish_rules(signed(store), L24_RULES)
    with pytest.raises(StaleDocument):
        publish_rules(signed(store), replace(L24_RULES, created_at_ms=NOW_MS + 1))
    later = replace(L24_RULES, version=8)
    publish_rules(signed(store), later)
    assert (load_version(signed(store), 7), load_version(signed(store), 8)) == (L24_RULES, later)
    assert trim_history(store, 8 + HISTORY_MAX) == 1
    assert load_version(signed(store), 8) == later
