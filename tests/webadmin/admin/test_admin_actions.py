"""Actions of operators: form, preview, execution, audit; never with view permission alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.profile_block.container.object_names import block_key, dead_letter_key
from engine.formats.profile_block.model import BlockMeta
from engine.schedule.limits import LimitName, Scope, ScopeKind
from engine.storage import ObjectStore, open_store
from tests.block_factory import block_meta, ulid
from tests.webadmin.admin import catalog_rows, rows, timeline_rows, tsdb_rows
from tests.webadmin.admin.test_front_page import words
from tests.webadmin.service import REASON, Service
from webadmin.base.access.models import AuditEntry
from webadmin.lanes.profiles.models import DeadLetter, LetterState
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.progress.models import ParkedJob
from webadmin.schedule.command_log import read_time
from webadmin.schedule.models import Command, Job
from webadmin.schedule.operation_models import IsolationStop, LimitChange, Pause
from webadmin.schedule.services.change_limit import limit_in_force

EVERYTHING = Scope(ScopeKind.GLOBAL)
LIMIT = {
    "limit": "failures_max",
    "scope_kind": "global",
    "scope_value": "",
    "value": "9",
    "for_seconds": "3600",
    "why": "a bad hour",
}


def address(model: type[Model], name: str) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_action", args=[name])


def give(operator: Client, model: type[Model], name: str, /, *ids: int, step: str = "apply", **values: str) -> str:
    answer = operator.post(
        address(model, name), {"ids": ",".join(map(str, ids)), "step": step, "why": "because"} | values, follow=True
    )
    assert answer.status_code == 200
    return words(answer.content.decode())


def parked_by_failures(service: Service) -> Job:
    service.add_segments(20)
    worker = service.worker()
    for _ in range(4):
        for spec in worker.take():
            worker.poll(worker.released(spec.job, REASON), capacity=0)
    job = Job.objects.get()
    assert job.state == "parked"
    return job


def test_a_limit_for_an_hour_is_previewed_and_then_holds(operator: Client, service: Service) -> None:
    text = give(operator, LimitChange, "set-limit", step="preview", **LIMIT)
    assert "Expected changes" in text
    assert "Before 3" in text
    assert "After 9" in text
    assert not LimitChange.objects.exists()
    assert not Command.objects.exists()
    assert "Set a limit: done" in give(operator, LimitChange, "set-limit", **LIMIT)
    now_ms = read_time().now_ms
    assert limit_in_force(LimitName.FAILURES_MAX, EVERYTHING, now_ms) == 9
    assert limit_in_force(LimitName.FAILURES_MAX, EVERYTHING, now_ms + 3_600_001) == 3
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.detail["why"]) == ("operator", "a bad hour")


def test_a_limit_of_a_tenant_that_nobody_has_seen_says_so_in_the_preview(operator: Client, service: Service) -> None:
    unknown = LIMIT | {"scope_kind": "tenant", "scope_value": "acmee"}
    text = give(operator, LimitChange, "set-limit", step="preview", **unknown)
    assert "is known: this holds only once data of a tenant of that name arrives" in text


def test_several_stops_are_decided_at_once(operator: Client) -> None:
    stops = [rows.make_stop(lane="tables", place=place) for place in ("acme/orders", "acme/visits")]
    rows.make_stop(lane="tables", place="acme/clicks")
    ids = [stop.pk for stop in stops]
    give(operator, IsolationStop, "decide", *ids, step="preview", decision="retry")
    assert not IsolationStop.objects.exclude(ended_at_ms=None).exists()
    assert "Decide: 0 changed" in give(operator, IsolationStop, "decide", *ids, decision="retry")
    ended = IsolationStop.objects.exclude(ended_at_ms=None)
    assert sorted(ended.values_list("pk", "decision", "ended_by", "why")) == [
        (pk, "retry", "operator", "because") for pk in sorted(ids)
    ]
    assert AuditEntry.objects.filter(action="decide_isolation").count() == 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"value": "-1"}, "greater than or equal to 0"),
        ({"value": "2000"}, "outside 0 to 1000"),
        ({"limit": "lease_seconds", "scope_kind": "tenant", "scope_value": "acme"}, "cannot be set for a tenant"),
        ({"scope_value": "acme"}, "a global cannot be"),
        ({"why": ""}, "required"),
        ({"for_seconds": "0"}, "greater than or equal to 1"),
        ({"limit": "nothing"}, "valid choice"),
        ({"limit": "running_max", "scope_kind": "lane", "scope_value": "nosuch"}, "name one of catalog, profiles"),
    ],
)
def test_errors_of_the_service_are_shown_at_the_form(
    operator: Client, service: Service, change: dict[str, str], complaint: str
) -> None:
    for step in ("preview", "apply"):
        assert complaint in give(operator, LimitChange, "set-limit", step=step, **LIMIT | change)
    assert not LimitChange.objects.exists()


def test_a_tenant_is_drained_and_resumed(operator: Client, service: Service) -> None:
    values = {"scope_kind": "tenant", "scope_value": "acme", "mode": "drain", "for_seconds": ""}
    assert "Expected changes" in give(operator, Pause, "pause", step="preview", **values)
    assert not Pause.objects.exists()
    give(operator, Pause, "pause", **values)
    pause = Pause.objects.get()
    assert (pause.mode, pause.scope_value, pause.actor) == ("drain", "acme", "operator")
    assert "tenant acme" in give(operator, Pause, "resume", pause.pk, step="preview")
    assert "1 changed" in give(operator, Pause, "resume", pause.pk)
    pause.refresh_from_db()
    assert pause.ended_by == "operator"


def test_a_parked_job_is_requeued_from_its_page(operator: Client, service: Service) -> None:
    job = parked_by_failures(service)
    page = operator.get(reverse("admin:progress_parkedjob_change", args=[job.pk]))
    assert f"{address(ParkedJob, 'requeue')}?ids={job.pk}" in page.content.decode()
    assert "Last error ChecksumMismatch" in words(page.content.decode())
    preview = give(operator, ParkedJob, "requeue", job.pk, step="preview")
    assert "Changed (1)" in preview
    assert job.name in preview
    job.refresh_from_db()
    assert job.state == "parked"
    assert "Requeue: 1 changed" in give(operator, ParkedJob, "requeue", job.pk)
    job.refresh_from_db()
    assert (job.state, job.failures) == ("waiting", 0)
    again = give(operator, ParkedJob, "requeue", job.pk)
    assert "Select rows first." in again, "it is not parked any more"


def test_jobs_are_requeued_by_error_class(operator: Client, service: Service) -> None:
    job = parked_by_failures(service)
    other = give(operator, ParkedJob, "requeue-many", error_class="Other", tenant="", level="")
    assert "0 changed" in other
    empty = give(operator, ParkedJob, "requeue-many", error_class="", tenant="", level="")
    assert "name jobs, give a filter, or say that all are meant" in empty
    given = give(operator, ParkedJob, "requeue-many", error_class="ChecksumMismatch", tenant="", level="0")
    assert "1 changed" in given
    job.refresh_from_db()
    assert job.state == "waiting"


def test_blocks_go_back_and_a_job_is_set_aside(operator: Client, service: Service) -> None:
    job = parked_by_failures(service)
    assert "1 changed" in give(operator, ParkedJob, "return-job-blocks", job.pk)
    assert service.states() == {"queued": 20}
    [spec] = service.worker().take()
    running = Job.objects.get(name=spec.job, state="leased")
    assert "1 changed" in give(operator, Job, "cancel", running.pk)
    running.refresh_from_db()
    assert (running.state, running.parked_kind) == ("parked", "deferred")
    assert "because" in running.parked_reason


def test_a_ticked_row_leads_to_the_action(operator: Client) -> None:
    job = rows.make_job("one", "parked")
    listing = reverse("admin:progress_parkedjob_changelist")
    answer = operator.post(listing, {"action": "requeue", "_selected_action": [job.pk]})
    assert answer["Location"] == f"{address(ParkedJob, 'requeue')}?ids={job.pk}"


def test_a_quarantined_block_is_released(operator: Client, service: Service) -> None:
    job = parked_by_failures(service)
    block = job.source_blocks.first()
    Job.objects.filter(pk=job.pk).update(parked_kind="quarantined", parked_reason="quarantined")
    row = rows.make_quarantine(block, job=job)
    assert "Changed (1)" in give(operator, Quarantine, "release", row.pk, step="preview")
    row.refresh_from_db()
    assert row.released_at_ms is None
    give(operator, Quarantine, "release", row.pk)
    row.refresh_from_db()
    assert (row.released_by, row.release_why) == ("operator", "because")


def test_users_with_view_permission_run_no_actions(db: None) -> None:
    looker = User.objects.create(username="looker", is_staff=True)
    looker.user_permissions.add(*Permission.objects.filter(codename__startswith="view_"))
    client = Client()
    client.force_login(looker)
    job = rows.make_job("one", "parked")
    page = client.get(reverse("admin:progress_parkedjob_change", args=[job.pk]))
    assert page.status_code == 200
    assert "/action/" not in page.content.decode()
    assert client.get(address(ParkedJob, "requeue"), {"ids": job.pk}).status_code == 403
    assert client.post(address(ParkedJob, "requeue"), {"ids": job.pk, "step": "apply", "why": "x"}).status_code == 403
    job.refresh_from_db()
    assert job.state == "parked"


@pytest.mark.parametrize("ids", ["", "x", "999999", "1_2", "1,,", "9" * 40])
def test_an_action_without_known_rows_requests_a_choice(operator: Client, ids: str) -> None:
    answer = operator.get(address(Job, "cancel"), {"ids": ids}, follow=True)
    assert "Select rows first." in words(answer.content.decode())


def test_an_unknown_action_is_not_found(operator: Client) -> None:
    assert operator.get(address(Job, "explode")).status_code == 404


def test_every_action_has_a_page(operator: Client) -> None:
    from django.contrib import admin

    from webadmin.adminkit.actions import ActionAdmin

    rows.fill()
    tsdb_rows.fill_tsdb()
    timeline_rows.fill_timeline()
    catalog_rows.fill_catalog()
    seen = 0
    for model, page in admin.site._registry.items():
        if isinstance(page, ActionAdmin):
            row = model._default_manager.first()
            for one in page.operator_actions:
                answer = operator.get(address(model, one.name), {"ids": row.pk})
                assert answer.status_code == 200
                assert "Preview" in answer.content.decode()
                seen += 1
    assert seen >= 13


def test_a_dead_letter_is_given_up_with_a_reason(
    operator: Client, service: Service, settings: Any, tmp_path: Path
) -> None:
    settings.OBJECT_STORE_URL = f"file://{tmp_path}"
    rows.make_operations()
    letter = DeadLetter.objects.get()
    open_store(settings.OBJECT_STORE_URL).put(letter.key, b"not a letter")
    assert letter.key in give(operator, DeadLetter, "discard", letter.pk, step="preview")
    assert "0 changed, 1 unchanged" in give(operator, DeadLetter, "retry", letter.pk)
    letter.refresh_from_db()
    assert letter.state == LetterState.WAITING
    assert "1 changed" in give(operator, DeadLetter, "discard", letter.pk)
    letter.refresh_from_db()
    assert (letter.state, letter.reason) == (LetterState.DISCARDED, "discarded by operator: because")
    assert "0 changed" in give(operator, DeadLetter, "discard", letter.pk)


def test_recovering_letters_is_previewed_letter_by_letter(
    operator: Client, service: Service, settings: Any, tmp_path: Path
) -> None:
    settings.OBJECT_STORE_URL = f"file://{tmp_path}"
    store = open_store(settings.OBJECT_STORE_URL)
    metas = [block_meta(ulid(service.clock.now_ms, number), datasets=(("acme", "web"),)) for number in range(2)]
    letters = [_letter(store, meta) for meta in metas]
    store.put(block_key(metas[0].shard, "", 0, metas[0].id), bytes(metas[0].size))
    ids = [letter.pk for letter in letters]
    read_time()
    before = service.dump()
    preview = give(operator, DeadLetter, "retry", *ids, step="preview")
    assert "Changed (1)" in preview
    assert "Left (1)" in preview
    assert block_key(metas[1].shard, "", 0, metas[1].id) in preview, "the reason names the object that is missing"
    assert service.dump() == before, "a preview changes nothing"
    assert set(store_keys(store)) >= {letter.key for letter in letters}
    assert "1 changed, 1 unchanged" in give(operator, DeadLetter, "retry", *ids)
    assert [letter.state for letter in DeadLetter.objects.order_by("pk")] == ["recovered", "waiting"]
    assert service.states() == {"queued": 1}


def _letter(store: ObjectStore, meta: BlockMeta) -> DeadLetter:
    key = dead_letter_key(meta.shard, "", meta.id)
    store.put(key, encode_metadata(meta))
    return DeadLetter.objects.create(
        key=key,
        shard=meta.shard,
        ulid=meta.id,
        size_bytes=meta.size,
        written_at_ms=1,
        attempts=1,
        first_attempt_ms=1,
        last_attempt_ms=1,
    )


def store_keys(store: ObjectStore) -> list[str]:
    return [info.key for info in store.list("")]
