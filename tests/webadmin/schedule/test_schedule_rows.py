"""Rows of the sheet about one poll as a whole, restarts, counters and tombstones, over the real tables."""

from __future__ import annotations

import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.lanes.profiles.jobs import ProfileMergeSpec
from engine.protocol.errors import InvalidMessage
from engine.protocol.wire import request_from_wire
from tests.block_factory import block_meta, merged, segment_ids
from tests.webadmin.probes import probe
from tests.webadmin.service import REASON, Service, check_invariants
from webadmin.lanes.profiles.models import Block, Tombstone
from webadmin.lanes.profiles.services.delete_objects import confirm_deleted
from webadmin.progress.services import count_log
from webadmin.schedule.errors import ScheduleBusy, StaleSnapshot
from webadmin.schedule.models import Command, Job


def metric(name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a metric that the service shows, by their labels."""
    text = probe("/metrics").content.decode()
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def complete_jobs(service: Service, *shards: int) -> list[str]:
    """Merge twenty segments in each shard; return the ids of all sources."""
    worker, ids = service.worker(), []
    for shard in shards:
        ids += service.add_segments(20, shard=shard)
        [spec] = worker.take()
        worker.poll(worker.success(spec.job), capacity=0)
    return ids


@pytest.mark.row("S4")
def test_an_unknown_status_is_refused() -> None:
    update = {"job": "1", "token": "1"}
    for wrong in (update, update | {"status": ""}, update | {"status": "unspecified"}, update | {"status": None}):
        with pytest.raises(InvalidMessage, match="status"):
            request_from_wire({"worker": "w", "build": "", "capacity": 0, "updates": [wrong]})


@pytest.mark.row("S22")
def test_one_poll_adds_returns_completes_and_evicts(service: Service) -> None:
    for shard in (2, 3, 4):
        service.add_segments(20, shard=shard)
    worker = service.worker()
    two, three, four = sorted(worker.take(3), key=lambda spec: spec.shard)
    Job.objects.filter(name=four.job).update(failures=3)
    service.add_segments(20, shard=1)
    updates = (worker.released(two.job), worker.success(three.job), worker.released(four.job, REASON))
    worker.poll(*updates, capacity=1)
    states = dict(Job.objects.values_list("shard", "state"))
    assert states == {1: "leased", 2: "waiting", 3: "done", 4: "parked"}
    assert {spec.shard for spec in service.worker("other").take(4)} == {2}
    count_log()
    level = ("profiles", "0")
    assert metric("lithify_jobs_completed_total")[level] == 1
    assert metric("lithify_jobs_evicted_total")[level] == 1
    check_invariants()


@pytest.mark.row("S23")
def test_after_a_restart_what_was_stored_is_assignable(service: Service) -> None:
    """Nothing is kept in memory: a service that has just started reads the same rows. Sums are rows too, and stay."""
    for shard in (1, 2):
        service.add_segments(20, shard=shard)
    worker = service.worker()
    worker.poll(*(worker.released(spec.job) for spec in worker.take(2)), capacity=0)
    assert set(Job.objects.values_list("state", flat=True)) == {"waiting"}
    restarted = Service(service.clock)
    assert {spec.shard for spec in restarted.worker("after").take(2)} == {1, 2}


@pytest.mark.row("S24")
def test_levels_without_jobs_show_nothing(service: Service) -> None:
    worker = service.worker()
    service.add_segments(20)
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=0)
    ids = segment_ids(service.clock.now_ms, 10, first=500)
    service.add(*(block_meta(block_id, shard=9, level=2, tenant="acme", with_index=True) for block_id in ids))
    worker.poll(capacity=1)
    count_log()
    assert metric("lithify_jobs") == {("2", "leased"): 1}
    for name in ("added", "completed"):
        assert metric(f"lithify_jobs_{name}_total")["profiles", "0"] == 1
        assert ("profiles", "1") not in metric(f"lithify_jobs_{name}_total")


@pytest.mark.row("R2")
def test_the_log_has_the_results_and_the_answer_the_new_job(service: Service) -> None:
    service.add_segments(20)
    service.add_segments(20, shard=2)
    worker = service.worker()
    [spec] = worker.take()
    result = merged(spec)
    answer = worker.poll(worker.success(spec.job), capacity=1)
    [completed] = Command.objects.order_by("-index")[0].change_set["completed"]
    assert (completed["job"], completed["token"]) == (spec.job, spec.fence)
    assert [block["id"] for block in completed["results"]] == [block.id for block in result.blocks]
    assert "metadata" not in completed["results"][0], "the footer lies in the index, once"
    [new] = answer.assignments
    assert len(ProfileMergeSpec.from_json(new.spec).sources) == 20
    assert new.token


@pytest.mark.row("R12")
def test_tombstoned_blocks_are_known_after_a_restart(service: Service) -> None:
    ids = complete_jobs(service, 1, 2)
    restarted = Service(service.clock)
    again = [block_meta(block_id, shard=1 + n // 20) for n, block_id in enumerate(ids)]
    assert restarted.add(*again).duplicates == tuple(ids)
    assert Tombstone.objects.filter(deleted_at_ms=None).count() == 40
    assert Tombstone.objects.values("job").distinct().count() == 2


@pytest.mark.row("R14")
def test_confirming_the_last_tombstone_leaves_the_others_due(service: Service) -> None:
    complete_jobs(service, 1)
    rows = list(Tombstone.objects.order_by("id"))
    confirm_deleted([rows[-1].id], at_ms=1)
    due = Tombstone.objects.due(rows[0].eligible_at_ms + 1)
    assert list(due) == rows[:-1]


@pytest.mark.row("R15")
def test_confirming_every_fourth_tombstone_keeps_the_order_of_the_others(service: Service) -> None:
    """A thousand entries of one name there, one tombstone per block here: 60 show it as well."""
    complete_jobs(service, 1, 2, 3)
    rows = list(Tombstone.objects.order_by("eligible_at_ms", "id"))
    confirm_deleted([row.id for row in rows[::4]], at_ms=1)
    left = [row for place, row in enumerate(rows) if place % 4]
    assert list(Tombstone.objects.due(rows[-1].eligible_at_ms + 1)) == left
    assert len(left) == 45
    assert Block.objects.filter(state="deleted").count() == 15


@pytest.mark.row("R16")
def test_a_change_overtaken_by_others_is_rejected_whole(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.add_segments(20)
    worker = service.worker()
    worker.poll(capacity=0)

    def overtaken(*_: object) -> None:
        raise StaleSnapshot("somebody was quicker")

    monkeypatch.setattr(sys.modules["webadmin.schedule.services.poll"], "apply_change_set", overtaken)
    before = service.dump()
    with pytest.raises(ScheduleBusy):
        worker.poll(capacity=1)
    assert service.dump() == before
    assert ScheduleBusy.retryable
