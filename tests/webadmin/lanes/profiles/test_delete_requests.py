"""Delete requests: hidden at once, left out by merges, rewritten by a deadline, certified, never brought back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO

import pytest
from django.core.management import call_command
from django.db.models import F

from engine.lanes.profiles.jobs import DeleteMask, ProfileMergeSpec
from tests.block_factory import block_meta, merged, ulid
from tests.webadmin.service import REASON, Service, check_invariants
from webadmin.base.access.models import AuditEntry
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.deletion_queries import request_progress
from webadmin.lanes.profiles.errors import InvalidRule, TenantBusy
from webadmin.lanes.profiles.masks import mask_of, read_masks, reading_masks
from webadmin.lanes.profiles.models import Block, Dataset, DeleteRequest, DeletionCertificate, Tombstone
from webadmin.lanes.profiles.queries import IndexQuery, find_blocks, find_labels
from webadmin.lanes.profiles.services.delete_objects import confirm_deleted
from webadmin.lanes.profiles.services.delete_requests import DeletionTarget, request_deletion
from webadmin.lanes.profiles.services.retention_rules import place_hold
from webadmin.lanes.profiles.services.rewrite_masked import rewrite_masked
from webadmin.lanes.profiles.states import LIVE_STATES
from webadmin.progress.metrics import metrics_text
from webadmin.schedule.command_log import advance_clock
from webadmin.schedule.models import Attempt, Command, Job, LogHead
from webadmin.schedule.register import JobFilter
from webadmin.schedule.services.return_job_blocks import return_job_blocks

CONTEXT = ActionContext(actor="test", why="the customer asked")
PREVIEW = ActionContext(actor="test", is_dry_run=True)
BOTH = (("acme", "web"), ("beta", "web"))


def delete(tenant: str = "acme", **fields: object) -> DeleteRequest:
    outcome = request_deletion(DeletionTarget(tenant=tenant, **fields), context=CONTEXT)
    return DeleteRequest.objects.select_related("tenant").get(id=outcome.request_id)


def hidden() -> dict[tuple[str, str], int]:
    """Return how many live datasets readers have to mask, by tenant and service."""
    masks = read_masks()
    found: dict[tuple[str, str], int] = {}
    rows = Dataset.objects.filter(block__state__in=LIVE_STATES, format=0)
    for tenant, name, applied, low, high in rows.values_list(
        "tenant__name", "name__name", "masks_applied", "min_time_ms", "max_time_ms"
    ):
        own = reading_masks(masks, tenant=tenant, name=name, masks_applied=applied, min_time_ms=low, max_time_ms=high)
        found[tenant, name] = found.get((tenant, name), 0) + bool(own)
    return found


def final_block(service: Service, number: int = 0, *, tenant: str = "acme", services: Sequence[str] = ("web",)) -> str:
    """Import a block of the highest level."""
    block_id = ulid(service.clock.now_ms, number)
    meta = block_meta(block_id, tenant=tenant, level=3, datasets=[(tenant, name) for name in services], with_index=True)
    service.add(meta)
    return block_id


def everything_removed_is_deleted() -> None:
    confirm_deleted(list(Tombstone.objects.filter(deleted_at_ms=None).values_list("id", flat=True)), at_ms=1)


def test_data_is_hidden_from_the_commit_on(service: Service) -> None:
    service.add_segments(3, datasets=BOTH)
    request = delete()
    assert hidden() == {("acme", "web"): 3, ("beta", "web"): 0}
    assert (request.hidden_blocks, request.hidden_datasets) == (3, 3)
    check_invariants()


def test_data_that_comes_later_is_not_meant(service: Service) -> None:
    service.add_segments(2)
    delete()
    service.clock.advance(5)
    service.add_segments(3)
    assert hidden() == {("acme", "web"): 2}


def test_service_and_time_choose_what_is_hidden(service: Service) -> None:
    service.add_segments(2, datasets=[("acme", "web"), ("acme", "api")])
    now_ms = service.clock.now_ms
    delete(service="api")
    assert hidden() == {("acme", "web"): 0, ("acme", "api"): 2}
    delete(until_ms=now_ms)
    delete(from_ms=now_ms + 10**6)
    assert hidden() == {("acme", "web"): 0, ("acme", "api"): 2}
    delete(from_ms=now_ms + 500, until_ms=now_ms + 501)
    assert hidden()["acme", "web"] == 2, "data times are closed at the end: 500 ms are in the first segment too"


def test_a_merge_assigned_later_leaves_it_out_and_its_result_obeys(service: Service) -> None:
    service.add_segments(20, datasets=BOTH)
    request = delete()
    worker = service.worker()
    [spec] = worker.take()
    assert spec.masks == (mask_of(request),)
    assert {source.masks_applied for source in spec.sources} == {Block.objects.first().added_command_index}
    worker.poll(worker.success(spec.job), capacity=0)
    live = Dataset.objects.filter(block__state="queued", format=0)
    assert list(live.values_list("tenant__name", "masks_applied")) == [("beta", Job.objects.get().token)]
    assert hidden() == {("beta", "web"): 0}
    check_invariants()


def test_a_merge_that_was_running_brings_nothing_back(service: Service) -> None:
    service.add_segments(20, datasets=BOTH)
    worker = service.worker()
    [spec] = worker.take()
    request = delete()
    assert spec.masks == ()
    worker.poll(worker.success(spec.job), capacity=0)
    assert Attempt.objects.get().outcome == "completed"
    assert hidden() == {("acme", "web"): 1, ("beta", "web"): 0}, "its result is as hidden as its sources were"
    assert Dataset.objects.filter(block__state="queued", masks_applied__lt=request.command_index).exists()


def test_a_result_that_ignores_its_masks_is_refused(service: Service) -> None:
    """As a node of an older build would make it."""
    service.add_segments(20, datasets=BOTH)
    delete(selector='{region="eu"}')
    worker = service.worker()
    [spec] = worker.take()
    ignorant = merged(replace(spec, masks=()))
    worker.poll(worker.success(spec.job, ignorant), capacity=0)
    attempt = Attempt.objects.get()
    assert (attempt.outcome, "update the node" in attempt.reason["message"]) == ("refused", True)
    assert service.states() == {"owned": 20}
    worker.take()
    worker.poll(worker.success(spec.job), capacity=0)
    assert service.states()["replaced"] == 20


def test_a_dataset_that_no_mask_is_about_may_still_not_vanish(service: Service) -> None:
    service.add_segments(20, datasets=BOTH)
    delete()
    worker = service.worker()
    [spec] = worker.take()
    result = merged(spec)
    worker.poll(worker.success(spec.job, replace(result, blocks=())), capacity=0)
    assert Attempt.objects.get().outcome == "refused"


def test_a_job_of_which_all_is_deleted_ends_without_results(service: Service) -> None:
    service.add_segments(20)
    delete()
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=0)
    assert service.states() == {"replaced": 20}
    assert Tombstone.objects.count() == 20
    check_invariants()


def test_final_blocks_are_rewritten_on_their_level(service: Service) -> None:
    old = final_block(service, services=("api", "web"))
    final_block(service, 1, tenant="beta")
    request = delete(service="api")
    report = rewrite_masked(context=CONTEXT)
    [name] = report.jobs
    check_invariants()
    assert rewrite_masked(context=CONTEXT).jobs == [], "it is under way"
    worker = service.worker()
    [spec] = worker.take()
    assert (spec.job, spec.is_rewrite, spec.masks) == (name, True, (mask_of(request),))
    worker.poll(worker.success(spec.job), capacity=0)
    result = Block.objects.get(state="final", tenant__name="acme")
    assert (result.level, result.ulid == old) == (3, False)
    names = result.datasets.filter(format=0).values_list("name__name", flat=True)
    assert list(names) == ["web"]
    check_invariants()


def test_a_request_is_done_when_the_objects_are_gone_too(service: Service) -> None:
    final_block(service, services=("api", "web"))
    request = delete(service="api")
    rewrite_masked(context=CONTEXT)
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=0)
    assert rewrite_masked(context=CONTEXT).done == [], "the object of the replaced block is still there"
    everything_removed_is_deleted()
    assert rewrite_masked(context=CONTEXT).done == [request.command_index]
    certificate = DeletionCertificate.objects.get()
    assert (certificate.request, certificate.detail["hidden_datasets"]) == (request, 1)
    assert certificate.detail["is_late"] is False
    before = service.dump()
    assert rewrite_masked(context=CONTEXT).to_json() == {
        "dropped": [],
        "jobs": [],
        "tried_again": [],
        "done": [],
        "late": [],
    }
    assert service.dump() == before
    assert read_masks() == ()


def test_blocks_of_which_everything_is_deleted_are_dropped_unread(service: Service) -> None:
    gone = {final_block(service, 0), final_block(service, 1, services=("api", "web"))}
    kept = final_block(service, 2, tenant="beta")
    delete()
    assert set(rewrite_masked(context=CONTEXT).dropped) == gone
    assert set(Block.objects.live().values_list("ulid", flat=True)) == {kept}
    assert set(Tombstone.objects.values_list("cause", flat=True)) == {"request"}
    check_invariants()


def test_two_requests_together_may_take_a_block_whole(service: Service) -> None:
    block = final_block(service, services=("api", "web"))
    delete(service="api", selector="")
    delete(service="web")
    assert rewrite_masked(context=CONTEXT).dropped == [block]


def test_a_queued_block_waits_for_its_merge_and_is_rewritten_when_none_comes(service: Service) -> None:
    meta = block_meta(ulid(service.clock.now_ms), tenant="acme", level=1, datasets=[("acme", "web"), ("acme", "api")])
    service.add(meta)
    delete(service="api", deadline_hours=1)
    assert rewrite_masked(context=CONTEXT).jobs == []
    for _ in range(30 * 60 // 15 + 1):  # command time moves by a lease at a time
        service.clock.advance(15)
        advance_clock(actor="test")
    [name] = rewrite_masked(context=CONTEXT).jobs
    assert Job.objects.get(name=name).spec["is_rewrite"]
    check_invariants()


@pytest.mark.row("invariant-25")
def test_a_final_block_returned_by_a_rewrite_is_not_queued(service: Service) -> None:
    block = final_block(service, services=("api", "web"))
    delete(service="api")
    [name] = rewrite_masked(context=CONTEXT).jobs
    Job.objects.update(state="parked", parked_reason="it failed too often")
    LogHead.objects.update(live_job_count=0)
    assert return_job_blocks(JobFilter(names=(name,)), context=CONTEXT).changed == (name,)
    assert Block.objects.get().state == "final"
    check_invariants()
    rewrite_masked(context=CONTEXT)
    assert Block.objects.get(ulid=block).owner_job.state == "waiting", "it is tried again"


def test_a_request_past_its_deadline_is_reported(service: Service) -> None:
    service.add_segments(1, datasets=BOTH)
    request = delete()
    DeleteRequest.objects.update(deadline_at_ms=service.clock.now_ms - 1)
    assert rewrite_masked(context=CONTEXT).late == [request.command_index]


def test_an_import_brings_deleted_data_back_only_hidden(service: Service) -> None:
    """I18, rebuild: it is unknown when imported objects were first accepted, so finished requests hide them too."""
    final_block(service)
    request = delete()
    rewrite_masked(context=CONTEXT)
    everything_removed_is_deleted()
    assert rewrite_masked(context=CONTEXT).done == [request.command_index]
    meta = block_meta(ulid(service.clock.now_ms - 10**6, 7), tenant="acme", level=3)
    service.add(meta, any_age=True, kind=Command.Kind.IMPORT_BLOCKS)
    assert hidden() == {("acme", "web"): 1}
    assert rewrite_masked(context=CONTEXT).dropped == [meta.id]
    everything_removed_is_deleted()
    assert rewrite_masked(context=CONTEXT).done == [request.command_index]
    assert DeletionCertificate.objects.count() == 2


def test_a_dry_run_counts_blocks_and_changes_nothing(service: Service) -> None:
    service.add_segments(3, datasets=BOTH)
    before = service.dump()
    outcome = request_deletion(DeletionTarget(tenant="acme"), context=PREVIEW)
    assert (outcome.blocks, outcome.datasets, outcome.request_id) == (3, 3, None)
    assert service.dump() == before
    assert not DeleteRequest.objects.exists()


def test_repeated_requests_are_one_unless_data_was_added_since(service: Service) -> None:
    service.add_segments(2)
    first = delete(service="web")
    assert delete(service="web") == first
    service.clock.advance(5)
    service.add_segments(1)
    assert delete(service="web") != first
    assert hidden() == {("acme", "web"): 3}


def test_a_request_is_in_the_log_and_the_audit(service: Service) -> None:
    service.add_segments(1)
    request = delete(selector='{region="eu"}')
    entry = AuditEntry.objects.get(action="request_deletion")
    assert (entry.actor, entry.target, entry.detail["selector"]) == ("test", "acme", '{region="eu"}')
    assert Command.objects.get(index=request.command_index).change_set["action"] == "request_deletion"


def test_a_hold_and_a_request_exclude_each_other(service: Service) -> None:
    service.add_segments(1)
    place_hold(tenant="acme", context=CONTEXT)
    with pytest.raises(TenantBusy):
        delete()
    service.add_segments(1, shard=2, datasets=[("beta", "web")])
    delete("beta")
    with pytest.raises(TenantBusy):
        place_hold(tenant="beta", context=CONTEXT)


@pytest.mark.parametrize(
    "fields",
    [
        {"tenant": "a/b"},
        {"tenant": ""},
        {"tenant": "unknown"},
        {"selector": "{"},
        {"selector": '{a=~"("}'},
        {"from_ms": 5, "until_ms": 5},
        {"from_ms": 9, "until_ms": 5},
        {"from_ms": -1},
        {"until_ms": 1 << 63},
        {"service": "x" * 501},
        {"service": "\0"},
        {"deadline_hours": 0},
    ],
)
def test_impossible_requests_are_refused(service: Service, fields: dict[str, object]) -> None:
    service.add_segments(1)
    with pytest.raises(InvalidRule):
        request_deletion(DeletionTarget(**({"tenant": "acme"} | fields)), context=CONTEXT)
    assert not DeleteRequest.objects.exists()


@pytest.mark.row("invariant-27")
def test_a_request_changes_rows_of_its_tenant_only(service: Service) -> None:
    final_block(service)
    final_block(service, 1, tenant="beta")
    others = Block.objects.filter(tenant__name="beta")
    before = list(others.values()), list(Dataset.objects.filter(tenant__name="beta").values())
    delete()
    rewrite_masked(context=CONTEXT)
    assert (list(others.values()), list(Dataset.objects.filter(tenant__name="beta").values())) == before


def test_queries_do_not_find_what_is_deleted(service: Service) -> None:
    service.add_segments(2, datasets=[("acme", "web"), ("acme", "api"), ("beta", "web")])
    query = IndexQuery(tenants=("acme", "beta"), start_ms=0, end_ms=1 << 60, labels=("service_name",))
    delete(service="api")
    found = [(each.tenant, each.name) for block in find_blocks(query) for each in block.datasets]
    assert sorted(found) == [("acme", "web"), ("acme", "web"), ("beta", "web"), ("beta", "web")]
    assert find_labels(replace(query, tenants=("acme",))) == [(("service_name", "web"),)]
    delete("beta", from_ms=0, until_ms=1 << 61)
    delete("acme", selector='{region="eu"}')
    part = delete("acme", until_ms=service.clock.now_ms + 1)
    found_masks = {
        (each.tenant, each.name, tuple(mask.selector for mask in each.masks))
        for block in find_blocks(query)
        for each in block.datasets
    }
    assert found_masks == {("acme", "web", ('{region="eu"}',)), ("acme", "web", ('{region="eu"}', ""))}
    assert part.state == "hidden"


def test_the_specification_keeps_its_masks_over_the_wire() -> None:
    mask = DeleteMask(index=7, tenant="acme", service="web", selector='{a="b"}', from_ms=1, until_ms=None)
    spec = ProfileMergeSpec(job="j", tenant="acme", shard=1, level=1, sources=(), masks=(mask,), is_rewrite=True)
    assert ProfileMergeSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    older = {name: value for name, value in spec.to_json().items() if name not in ("masks", "is_rewrite")}
    assert ProfileMergeSpec.from_json(older).masks == ()


def test_the_command_previews_and_creates_requests(service: Service) -> None:
    service.add_segments(2)
    out = StringIO()
    call_command("delete_data", "acme", "--service", "web", "--dry-run", "--json", stdout=out)
    assert json.loads(out.getvalue())["datasets"] == 2
    assert hidden() == {("acme", "web"): 0}
    out = StringIO()
    call_command("delete_data", "acme", "--from", "2020-01-01", "--until", "2090-01-01T00:00:00Z", stdout=out)
    assert "2 datasets in 2 blocks" in out.getvalue()
    assert hidden() == {("acme", "web"): 2}


def parked_job(service: Service, datasets: Sequence[tuple[str, str]]) -> Job:
    """Return a job over fresh segments that has failed until it was parked."""
    service.add_segments(20, datasets=datasets)
    worker = service.worker()
    for _ in range(4):
        [spec] = worker.take()
        worker.poll(worker.released(spec.job, REASON), capacity=0)
    job = Job.objects.get(name=spec.job)
    assert job.state == "parked"
    return job


def test_parked_segments_are_hidden_at_once_and_dropped_when_they_hold_nothing_else(service: Service) -> None:
    job = parked_job(service, [("acme", "web")])
    delete()
    assert hidden() == {("acme", "web"): 20}
    assert len(rewrite_masked(context=CONTEXT).dropped) == 20
    job.refresh_from_db()
    assert job.state == "dissolved", "it ended with its last source"
    everything_removed_is_deleted()
    assert len(rewrite_masked(context=CONTEXT).done) == 1
    check_invariants()


def test_parked_jobs_over_deleted_data_run_once_more_at_half_the_time(service: Service) -> None:
    job = parked_job(service, BOTH)
    request = delete(deadline_hours=2)
    assert rewrite_masked(context=CONTEXT).tried_again == []
    assert "parked" in request_progress(request).waits_for()[0]
    service.clock.advance(10)
    advance_clock(actor="test")
    later_ms = 60 * 60_000 - 5000  # so that half the time was over five seconds after the last attempt
    DeleteRequest.objects.update(
        requested_at_ms=F("requested_at_ms") - later_ms, deadline_at_ms=F("deadline_at_ms") - later_ms
    )
    assert rewrite_masked(context=CONTEXT).tried_again == [job.name]
    worker = service.worker()
    for _ in range(4):
        [spec] = worker.take()
        worker.poll(worker.released(spec.job, REASON), capacity=0)
    assert rewrite_masked(context=CONTEXT).tried_again == [], "it failed again: somebody has to look"
    check_invariants()


def test_a_request_that_waits_for_quarantined_blocks_is_shown_and_becomes_late(service: Service) -> None:
    job = parked_job(service, BOTH)
    Job.objects.filter(id=job.id).update(parked_kind="quarantined")
    request = delete()
    assert hidden()["acme", "web"] == 20, "nobody sees it meanwhile"
    [waits] = request_progress(request).waits_for()
    assert waits.startswith("20 blocks in quarantine")
    assert b'lithify_delete_requests{state="late"} 0.0' in metrics_text()
    DeleteRequest.objects.update(deadline_at_ms=service.clock.now_ms - 1)
    report = rewrite_masked(context=CONTEXT)
    assert (report.late, report.tried_again, report.dropped) == ([request.command_index], [], [])
    assert b'lithify_delete_requests{state="late"} 1.0' in metrics_text()
