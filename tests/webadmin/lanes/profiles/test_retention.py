"""Retention over the index: what goes, what stays, and that nothing is taken from under anybody."""

from __future__ import annotations

import json
from collections.abc import Iterable
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.utils import timezone

from engine.core import ulids
from engine.formats.profile_block.container.metadata import decode_metadata
from engine.lanes.profiles.jobs import ProfileMergeSpec
from engine.storage import open_store
from tests.block_factory import block_meta, ulid
from tests.webadmin.service import FakeWorker, Service, check_invariants
from webadmin.base.access.models import AuditEntry
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.errors import InvalidRule
from webadmin.lanes.profiles.models import Block, Dataset, LegalHold, RetentionRule, Tombstone
from webadmin.lanes.profiles.services import delete_tombstoned_objects
from webadmin.lanes.profiles.services.retain import apply_retention
from webadmin.lanes.profiles.services.retention_rules import lift_hold, place_hold, set_retention
from webadmin.schedule.explain import explain_name
from webadmin.schedule.models import Command, Job, Limits

HOUR_MS = 3600 * 1000
CONTEXT = ActionContext(actor="test", why="because")
PREVIEW = ActionContext(actor="test", is_dry_run=True)


def keep(days: int, tenant: str = "") -> None:
    set_retention(tenant=tenant, keep_days=days, context=CONTEXT)


def old_block(
    service: Service, hours: float, number: int = 0, *, tenant: str = "acme", level: int = 3, **fields
) -> str:
    """Import a compacted block with data of so many hours ago."""
    block_id = ulid(service.clock.now_ms - round(hours * HOUR_MS), number)
    datasets = fields.pop("datasets", [(tenant, "web")])
    meta = block_meta(block_id, tenant=tenant, level=level, datasets=datasets, with_index=level > 0, **fields)
    outcome = service.add(meta, any_age=True)
    assert outcome.accepted == (block_id,)
    return block_id


def old_segment(
    service: Service, hours: float, number: int = 0, *, datasets: Iterable[tuple[str, str]], **fields
) -> str:
    return old_block(service, hours, number, tenant="", level=0, datasets=list(datasets), **fields)


def live() -> set[str]:
    return set(Block.objects.live().values_list("ulid", flat=True))


def test_data_older_than_31_days_goes_by_itself(service: Service) -> None:
    gone, kept = old_block(service, 32 * 24, 1), old_block(service, 30 * 24, 2)
    report = apply_retention(context=CONTEXT)
    assert (live(), report.dropped_blocks) == ({kept}, 1)
    stone = Tombstone.objects.get()
    assert (stone.block.ulid, stone.cause, stone.job) == (gone, "retention", None)
    assert stone.eligible_at_ms == stone.created_at_ms + 15 * 60 * 1000
    check_invariants()
    assert apply_retention(context=CONTEXT).dropped_blocks == 0


def test_a_dry_run_lists_expired_parts_and_changes_nothing(service: Service) -> None:
    old_block(service, 32 * 24)
    before = service.dump()
    report = apply_retention(context=PREVIEW)
    [part] = report.to_json()["expired"]
    assert (part["tenant"], part["blocks"], part["in_segments"]) == ("acme", 1, False)
    assert service.dump() == before
    later = apply_retention(context=PREVIEW, at_ms=service.clock.now_ms - 5 * 24 * HOUR_MS)
    assert later.expired == ()


def test_a_tenants_own_rule_and_0_for_ever(service: Service) -> None:
    keep(1, "short")
    keep(0, "infinite")
    short = old_block(service, 48, 1, tenant="short")
    others = {old_block(service, 48, 2, tenant="other"), old_block(service, 90 * 24, 3, tenant="infinite")}
    apply_retention(context=CONTEXT)
    assert live() == others
    assert Block.objects.get(ulid=short).state == "dropped"
    keep(0)
    old_block(service, 40 * 24, 4, tenant="other")
    assert apply_retention(context=CONTEXT).dropped_blocks == 0


@pytest.mark.row("C16")
def test_objects_of_a_kept_partition_stay_when_a_newer_one_expires(service: Service, tmp_path: Path) -> None:
    """C16, W6: there is no tombstone of a whole shard here, every object that goes is named."""
    keep(1)
    Limits.objects.update(cleanup_delay_seconds=0)
    kept_id = ulid(service.clock.now_ms - 60 * HOUR_MS)
    meta = block_meta(kept_id, tenant="acme", level=3)
    recent = [d.__class__(**{**_fields(d), "max_time_ms": service.clock.now_ms}) for d in meta.datasets]
    service.add(
        meta.__class__(**{**_fields(meta), "datasets": tuple(recent), "max_time_ms": service.clock.now_ms}),
        any_age=True,
    )
    gone = old_block(service, 40, 1)
    store = open_store(str(tmp_path))
    for key in Block.objects.values_list("object_key", flat=True):
        store.put(key, b"data")
    apply_retention(context=CONTEXT)
    service.clock.advance(10)
    delete_tombstoned_objects(store=store)
    assert live() == {kept_id}
    assert [info.key for info in store.list("blocks/")] == [Block.objects.get(ulid=kept_id).object_key]
    assert Block.objects.get(ulid=gone).state == "deleted"


def _fields(thing: object) -> dict[str, object]:
    return {name: getattr(thing, name) for name in type(thing).__dataclass_fields__}


def test_expired_blocks_leave_their_queue_and_are_not_merged(service: Service) -> None:
    keep(1)
    for number in range(20):
        old_segment(service, 48 + number / 3600, number, datasets=[("acme", "web")])
    apply_retention(context=CONTEXT)
    check_invariants()
    assert service.worker().take() == []
    assert service.states() == {"dropped": 20}


def test_a_waiting_job_loses_sources_and_ends_with_its_last(service: Service) -> None:
    for number in range(20):
        old_segment(service, 48, number, datasets=[("acme", "web")])
    worker = service.worker()
    [spec] = worker.take()
    keep(1)
    apply_retention(context=CONTEXT)
    assert service.states() == {"owned": 20}, "nothing is taken from under a worker"
    worker.poll(worker.released(spec.job), capacity=0)
    assert Job.objects.get().state == "waiting"
    apply_retention(context=CONTEXT)
    assert (Job.objects.get().state, service.states()) == ("dissolved", {"dropped": 20})
    check_invariants()


def test_what_a_worker_was_merging_goes_when_its_result_has_come(service: Service) -> None:
    for number in range(20):
        old_segment(service, 48, number, datasets=[("acme", "web")])
    worker = service.worker()
    [spec] = worker.take()
    keep(1)
    apply_retention(context=CONTEXT)
    worker.poll(worker.success(spec.job), capacity=0)
    assert service.states() == {"replaced": 20, "queued": 1}
    apply_retention(context=CONTEXT)
    assert service.states() == {"replaced": 20, "dropped": 1}
    check_invariants()


def test_a_segment_goes_with_the_last_tenant_in_it(service: Service) -> None:
    keep(1, "brief")
    keep(3, "long")
    segment = old_segment(service, 48, datasets=[("brief", "a"), ("brief", "b"), ("long", "c")])
    report = apply_retention(context=CONTEXT)
    assert (report.trimmed_segments, live()) == (1, {segment})
    assert list(Dataset.objects.values_list("tenant__name", "position")) == [("long", 2)]
    meta = decode_metadata(bytes(Block.objects.get().metadata))
    assert [dataset.name for dataset in meta.datasets] == ["", "", "c"], "positions stay what they were"
    check_invariants()
    service.clock.advance(40 * 3600)
    apply_retention(context=CONTEXT)
    assert service.states() == {"dropped": 1}
    check_invariants()


def test_a_merge_does_not_bring_back_what_was_trimmed_from_a_segment(service: Service) -> None:
    keep(1, "brief")
    for number in range(20):
        old_segment(service, 48, number, datasets=[("brief", "a"), ("long", "c")])
    apply_retention(context=CONTEXT)
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=0)
    assert service.states() == {"replaced": 20, "queued": 1}
    assert set(Dataset.objects.filter(block__state="queued").values_list("tenant__name", flat=True)) == {"long"}


@pytest.mark.row("invariant-27")
def test_a_tenants_retention_changes_rows_of_that_tenant_only(service: Service) -> None:
    old_block(service, 48, 1, tenant="mine")
    old_block(service, 48, 2, tenant="other")
    before = list(Block.objects.filter(tenant__name="other").values())
    keep(1, "mine")
    apply_retention(context=CONTEXT)
    assert list(Block.objects.filter(tenant__name="other").values()) == before
    assert Tombstone.objects.count() == 1


def test_a_run_has_a_cap_and_takes_the_oldest(service: Service) -> None:
    ids = [old_block(service, (40 + day) * 24, day) for day in range(4)]
    report = apply_retention(context=CONTEXT, count_max=3)
    assert (report.dropped_blocks, report.left_for_later, live()) == (3, 1, {ids[0]})


def test_a_hold_outweighs_retention_until_it_is_lifted(service: Service) -> None:
    old_block(service, 40 * 24)
    assert place_hold(tenant="acme", context=CONTEXT)
    assert not place_hold(tenant="acme", context=CONTEXT), "it is on hold already"
    assert apply_retention(context=CONTEXT).held_tenants == ("acme",)
    assert service.states() == {"final": 1}
    assert lift_hold(tenant="acme", at=timezone.now(), context=CONTEXT)
    assert not lift_hold(tenant="acme", at=timezone.now(), context=CONTEXT)
    assert LegalHold.objects.get().ended_by == "test"
    apply_retention(context=CONTEXT)
    assert service.states() == {"dropped": 1}


def test_a_hold_placed_after_the_plan_still_holds(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    old_block(service, 40 * 24)
    plan = apply_retention(context=PREVIEW)
    assert len(plan.expired) == 1
    from webadmin.lanes.profiles.services import retain

    monkeypatch.setattr(retain, "retention_policy", lambda: retain.RetentionPolicy())
    place_hold(tenant="acme", context=CONTEXT)
    assert apply_retention(context=CONTEXT).dropped_blocks == 0


def test_every_removal_is_in_the_log_and_in_the_audit(service: Service) -> None:
    gone = old_block(service, 40 * 24)
    [index] = apply_retention(context=CONTEXT).command_indexes
    assert Command.objects.get(index=index).change_set["dropped"] == [[1, gone]]
    entry = AuditEntry.objects.get(action="retention")
    assert (entry.actor, entry.target, entry.detail["command"]) == ("test", "acme", index)


def test_a_dropped_id_is_remembered(service: Service) -> None:
    keep(1)
    meta = block_meta(ulid(service.clock.now_ms - 48 * HOUR_MS))
    service.add(meta, any_age=True)
    apply_retention(context=CONTEXT)
    before = service.dump()
    assert service.add(meta).duplicates == (meta.id,)
    assert service.dump() == before
    assert ulids.time_ms(meta.id) < service.clock.now_ms


def test_rules_are_checked_and_setting_one_twice_changes_nothing(service: Service) -> None:
    for tenant, days in (("a/b", 1), ("acme", -1), ("acme", 40_000)):
        with pytest.raises(InvalidRule):
            set_retention(tenant=tenant, keep_days=days, context=CONTEXT)
    assert set_retention(tenant="acme", keep_days=5, context=PREVIEW).before is None
    assert not RetentionRule.objects.exists()
    for _ in range(2):
        set_retention(tenant="acme", keep_days=5, context=CONTEXT)
    assert AuditEntry.objects.filter(action="set_retention").count() == 1
    set_retention(tenant="acme", keep_days=None, context=CONTEXT)
    assert not RetentionRule.objects.exists()


def test_the_command_previews_and_applies(service: Service) -> None:
    old_block(service, 40 * 24)
    out = StringIO()
    call_command("retention", "--dry-run", "--json", stdout=out)
    assert json.loads(out.getvalue())["expired"][0]["tenant"] == "acme"
    assert service.states() == {"final": 1}
    out = StringIO()
    call_command("retention", stdout=out)
    assert "acme" in out.getvalue()
    assert service.states() == {"dropped": 1}


def test_blocks_past_retention_are_not_merged_and_delay_no_others(service: Service) -> None:
    keep(1)
    old = [old_segment(service, 48 + n / 3600, n, datasets=[("acme", "web")]) for n in range(60)]
    worker = service.worker()
    assert worker.take() == [], "a full queue of blocks that go is no work"
    assert "past the retention of its tenants" in explain_name(old[0])[0].sentence
    service.add_segments(20, shard=2)
    assert [spec.shard for spec in worker.take()] == [2]
    service.add_segments(20)
    [spec] = _after_rest(service, worker)
    assert (spec.shard, len(spec.sources)) == (1, 20)
    assert not {source.id for source in spec.sources} & set(old), "younger blocks behind them do not wait"
    apply_retention(context=CONTEXT)
    assert service.states() == {"dropped": 60, "owned": 40}
    check_invariants()


def test_a_segment_that_others_still_need_is_merged_and_a_longer_rule_lets_all_be_merged(service: Service) -> None:
    keep(1, "short")
    for n in range(20):
        old_segment(service, 48, n, datasets=[("short", "web"), ("acme", "web")])
    worker = service.worker()
    assert len(worker.take()) == 1
    keep(1)
    for n in range(20, 40):
        old_segment(service, 48, n, shard=2, datasets=[("acme", "web")])
    assert worker.take(8) == []
    keep(3)
    assert [spec.shard for spec in _after_rest(service, worker)] == [2]
    check_invariants()


def _after_rest(service: Service, worker: FakeWorker) -> list[ProfileMergeSpec]:
    """Let command time pass until queues that were let be are looked at again."""
    for _ in range(12):
        service.clock.advance(14)
        worker.poll(*map(worker.running, worker.held), capacity=0)
    return worker.take()
