"""A round of placement: what segments say becomes rules, in the database and in the store, once and in order."""

from __future__ import annotations

import json

import pytest
from django.db import connection

from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.profile_block.container.object_names import dead_letter_key
from engine.placement.documents import decode_statistics
from engine.placement.errors import BadDocument
from engine.placement.model import LoadBalancing, PlacementRules
from engine.placement.publication import RULES_KEY, STATISTICS_KEY, load_rules, load_version, publish_rules
from engine.storage.local import LocalStore
from engine.storage.model import StorageError
from tests.block_factory import block_meta, ulid
from tests.faults.failing_store import FailingStore, Fault
from tests.signed_documents import signed
from tests.webadmin.placement.conftest import KIB, UNIT, Placement
from tests.webadmin.service import Service
from webadmin.lanes.profiles.registration import BlockRegistration
from webadmin.lanes.profiles.services import add_blocks
from webadmin.lanes.profiles.services.recover_letters import recover_letters
from webadmin.placement.new_segments import FIRST_COMMANDS
from webadmin.placement.rule_models import PlacementLimit, PlacementOverride, RuleChange, RulesHead, RulesVersion
from webadmin.placement.services import build_placement_rules as rounds
from webadmin.schedule.models import Command


def usage_of(placement: Placement, tenant: str, dataset: str) -> dict[tuple[int, str], int]:
    """Return bytes/s by shard and owner, from the statistics in the database."""
    statistics = decode_statistics(bytes(RulesHead.objects.get().statistics))
    [found] = [one for one in statistics.datasets if (one.tenant, one.dataset) == (tenant, dataset)]
    return {(shard.shard, shard.owner): shard.usage for shard in found.shards}


def test_a_segment_becomes_usage_of_its_tenant_dataset_shard_and_writer(placement: Placement) -> None:
    placement.run(15 * 60, ("acme", "web", 3, 4 * UNIT))
    usage = usage_of(placement, "acme", "web")
    assert list(usage) == [(3, "writer-1")]
    assert usage[3, "writer-1"] == pytest.approx(4 * UNIT, rel=0.05)
    assert placement.rules().rule("acme", "web").dataset_shards >= 4


def test_a_segment_counts_once_however_many_rounds_look_at_the_log(placement: Placement) -> None:
    placement.write("acme", "web", UNIT)
    assert placement.round().segments == 1
    assert placement.round().segments == 0


@pytest.mark.row("placement-weakness-17.12")
def test_a_recovered_dead_letter_counts_as_usage(placement: Placement, store: LocalStore) -> None:
    meta = placement.segment("acme", "late", 1000 * KIB)
    store.put(BlockRegistration.of(meta).object_key, bytes(meta.size))
    store.put(dead_letter_key(meta.shard, meta.tenant, meta.id), encode_metadata(meta))
    assert recover_letters(store=store).recovered == 1
    placement.round()
    placement.round()
    assert usage_of(placement, "acme", "late")[1, "writer-1"] > 0


def test_an_import_is_no_load(placement: Placement) -> None:
    meta = placement.segment("acme", "old", 1000 * KIB)
    add_blocks([BlockRegistration.of(meta)], actor="import", kind=Command.Kind.IMPORT_BLOCKS, any_age=True)
    assert placement.round().segments == 0


def test_a_compacted_block_is_no_load(placement: Placement) -> None:
    block_id = ulid(placement.service.clock.now_ms, 77)
    placement.service.add(block_meta(block_id, level=1, tenant="acme"))
    assert placement.round().segments == 0


def test_a_command_that_is_committed_late_is_counted_when_it_appears(placement: Placement) -> None:
    placement.write("acme", "web", UNIT)
    placement.round()
    first = Command.objects.order_by("-index").first()
    placement.write("acme", "late", UNIT)
    placement.write("acme", "early", UNIT)
    late = Command.objects.filter(index__gt=first.index).order_by("index").first()
    Command.objects.filter(index=late.index).update(kind=Command.Kind.UPDATE_PLAN)
    hidden = Command.objects.get(index=late.index)
    hidden.delete()
    assert placement.round().segments == 1
    Command(
        index=late.index,
        kind=Command.Kind.ADD_BLOCKS,
        command_time_ms=late.command_time_ms,
        wall_time=late.wall_time,
        actor=late.actor,
        change_set=late.change_set,
    ).save(force_insert=True)
    assert placement.round().segments == 1
    assert set(placement.rules().datasets) >= {("acme", "late"), ("acme", "early")}
    assert placement.round().segments == 0


def test_the_first_round_does_not_read_a_whole_old_log(placement: Placement, monkeypatch: pytest.MonkeyPatch) -> None:
    assert FIRST_COMMANDS >= 1000
    monkeypatch.setattr("webadmin.placement.new_segments.FIRST_COMMANDS", 2)
    for _ in range(5):
        placement.write("acme", "web", UNIT)
    assert placement.round().segments == 2


def test_of_two_builders_that_start_from_one_round_the_second_writes_nothing(
    placement: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    placement.write("acme", "web", UNIT)
    original, inner = rounds.operator_settings, []

    def settings_while_another_builds():
        if not inner:
            inner.append(None)
            inner[0] = placement.round(after_s=0)
        return original()

    monkeypatch.setattr(rounds, "operator_settings", settings_while_another_builds)
    outer = placement.round()
    assert inner[0].version == 1
    assert outer.is_late
    assert outer.version is None
    assert placement.rules().version == 1 == load_rules(signed(placement.store)).version
    placement.round()
    assert usage_of(placement, "acme", "web") == {(1, "writer-1"): pytest.approx(UNIT / 15 * 0.056, rel=0.05)}


def test_the_placement_state_survives_a_change_of_process(placement: Placement) -> None:
    placement.run(600, ("acme", "web", 1, 8 * UNIT))
    shards = placement.rules().rule("acme", "web").dataset_shards
    placement.run(600, ("acme", "web", 1, 0))
    assert placement.rules().rule("acme", "web").dataset_shards == shards, "nothing shrinks within a decay window"


def test_without_state_the_published_rules_are_continued(placement: Placement) -> None:
    placement.run(600, ("acme", "web", 1, 8 * UNIT))
    shards = placement.rules().rule("acme", "web").dataset_shards
    RulesHead.objects.update(state=b"")
    placement.write("acme", "web", KIB)
    placement.round()
    assert placement.rules().rule("acme", "web").dataset_shards == shards


def test_every_change_leaves_a_version_with_its_reason(placement: Placement) -> None:
    placement.run(300, ("acme", "web", 1, 4 * UNIT))
    changes = list(RuleChange.objects.order_by("id"))
    assert changes[0].before is None
    assert changes[0].reason.startswith("new dataset")
    grown = [change for change in changes[1:] if change.after["dataset_shards"] > change.before["dataset_shards"]]
    assert grown
    assert "limit per shard 128 KiB/s" in grown[0].reason
    assert "acme/web" in RulesVersion.objects.order_by("version").first().reason


def test_a_round_that_changes_nothing_leaves_no_history_but_new_rules(placement: Placement) -> None:
    placement.write("acme", "web", KIB)
    placement.round()
    count = RulesVersion.objects.count()
    placement.round()
    assert RulesVersion.objects.count() == count
    assert placement.rules().version == 2


def test_history_ends_after_thirty_days(placement: Placement) -> None:
    placement.write("acme", "web", KIB)
    placement.round()
    placement.service.clock.advance(31 * 86_400)
    placement.write("acme", "other", KIB)
    placement.round()
    assert set(RuleChange.objects.values_list("dataset", flat=True)) == {"web", "other"}, "web expired just now"
    assert RulesVersion.objects.count() == 1


@pytest.mark.row("L20")
def test_without_a_placement_round_nothing_is_written(placement: Placement, store: LocalStore) -> None:
    placement.write("acme", "web", UNIT)
    assert not list(store.list("placement/"))


@pytest.mark.row("L21")
def test_nothing_is_published_before_the_confidence_period_is_over(placement: Placement) -> None:
    placement.write("acme", "web", UNIT)
    assert placement.round(confidence_ms=40_000).version is None
    assert placement.round(confidence_ms=40_000).version is None
    assert not list(placement.store.list("placement/"))
    assert placement.round(after_s=30, confidence_ms=40_000).version == 1
    assert ("acme", "web") in placement.rules().datasets, "what was gathered meanwhile counts"


@pytest.mark.row("L22")
@pytest.mark.parametrize("fault", [Fault("get"), Fault("get", error=BadDocument)])
def test_rules_that_cannot_be_loaded_stop_the_round_and_lose_no_usage(placement: Placement, fault: Fault) -> None:
    placement.write("acme", "web", UNIT)
    failing = FailingStore(placement.store, fault)
    with pytest.raises((StorageError, BadDocument)):
        placement.round(store=failing)
    assert not list(placement.store.list("placement/"))
    assert placement.round().segments == 1


@pytest.mark.row("L23")
def test_missing_rules_are_written_again(placement: Placement) -> None:
    assert placement.round().version == 1
    assert load_rules(signed(placement.store)).version == 1


@pytest.mark.row("L24", "L25")
def test_rules_follow_configuration_and_stay_without_statistics(placement: Placement) -> None:
    fixed = {"load_balancing": LoadBalancing.ROUND_ROBIN}
    PlacementLimit.objects.create(tenant="acme", tenant_shards=8, dataset_shards_min=5, **fixed)
    placement.run(60, ("acme", "a", 1, UNIT), ("beta", "b", 1, UNIT))
    rules = placement.rules()
    assert rules.rule("acme", "a").tenant_shards == 8
    assert rules.rule("acme", "a").dataset_shards >= 5
    assert rules.rule("acme", "a").load_balancing is LoadBalancing.ROUND_ROBIN
    assert rules.rule("beta", "b").tenant_shards == 0
    placement.run(60, ("acme", "a", 1, UNIT))
    assert set(placement.rules().datasets) == {("acme", "a"), ("beta", "b")}


@pytest.mark.row("L26")
def test_all_rules_expire_without_writes(placement: Placement) -> None:
    placement.write("acme", "web", UNIT)
    placement.round()
    placement.round(after_s=16 * 60)
    placement.round(after_s=16 * 60)
    assert placement.rules().datasets == {}
    assert RuleChange.objects.order_by("-id").first().reason == "no writes for 15 minutes"


@pytest.mark.row("L27")
def test_tenants_with_the_same_dataset_name_have_separate_rules(placement: Placement) -> None:
    placement.run(300, ("acme", "web", 1, 6 * UNIT), ("beta", "web", 2, KIB))
    rules = placement.rules()
    assert rules.rule("acme", "web").dataset_shards > rules.rule("beta", "web").dataset_shards == 1


@pytest.mark.row("L28")
def test_a_dataset_that_moves_shard_keeps_its_sum(placement: Placement) -> None:
    placement.run(900, ("acme", "web", 1, UNIT))
    placement.run(180, ("acme", "web", 2, UNIT))
    usage = usage_of(placement, "acme", "web")
    assert sum(usage.values()) == pytest.approx(UNIT, rel=0.06)
    assert usage[1, "writer-1"] == pytest.approx(UNIT / 2, rel=0.1)


@pytest.mark.row("L29")
def test_a_shard_without_writes_is_dropped(placement: Placement) -> None:
    placement.run(60, ("acme", "web", 1, UNIT))
    placement.run(60, ("acme", "web", 2, UNIT), owner="writer-2")
    assert set(usage_of(placement, "acme", "web")) == {(1, "writer-1"), (2, "writer-2")}
    placement.service.clock.advance(14.5 * 60)
    placement.run(15, ("acme", "web", 2, UNIT), owner="writer-2")
    assert set(usage_of(placement, "acme", "web")) == {(2, "writer-2")}


def test_an_override_is_in_the_next_rules_whatever_is_written(placement: Placement) -> None:
    PlacementOverride.objects.create(tenant="acme", dataset="quiet", shards=[4, 2])
    placement.round()
    assert placement.rules().rule("acme", "quiet").shards == (4, 2)
    PlacementOverride.objects.all().delete()
    placement.round()
    assert placement.rules().rule("acme", "quiet").shards == ()


def test_versions_and_times_continue_those_of_the_store_after_a_database_was_restored(placement: Placement) -> None:
    ahead_ms = placement.service.clock.now_ms + 3_600_000
    publish_rules(signed(placement.store), PlacementRules(version=41, created_at_ms=ahead_ms))
    assert placement.round().version == 42
    assert placement.rules().created_at_ms >= ahead_ms


def test_a_store_that_fails_after_the_commit_gets_the_next_version(placement: Placement) -> None:
    placement.write("acme", "web", UNIT)
    with pytest.raises(StorageError):
        placement.round(store=FailingStore(placement.store, Fault("put", key_part=RULES_KEY)))
    assert placement.round().version == 2
    assert load_rules(signed(placement.store)).version == 2
    assert load_version(signed(placement.store), 1).version == 1


def test_statistics_that_cannot_be_written_do_not_keep_the_rules_back(placement: Placement) -> None:
    with pytest.raises(StorageError):
        placement.round(store=FailingStore(placement.store, Fault("put", key_part=STATISTICS_KEY)))
    assert load_rules(signed(placement.store)).version == 1


def test_what_a_round_costs_does_not_depend_on_how_much_was_written(
    placement: Placement, django_assert_max_num_queries
) -> None:
    service: Service = placement.service
    for number in range(150):
        service.add_segments(1, shard=number % 8 + 1, datasets=[("acme", f"d{number % 40}")])
    with django_assert_max_num_queries(20):
        assert placement.round().segments == 150
    assert json.loads(json.dumps(RulesHead.objects.get().gaps)) == {}
    assert connection.vendor in {"sqlite", "postgresql"}
