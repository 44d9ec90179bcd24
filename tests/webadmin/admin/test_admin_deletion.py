"""Pages about data that goes: rules, holds, requests with their certificates, tombstones; and the orders on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from django.conf import LazySettings
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from engine.lanes.profiles.plan.retention import DAY_MS
from tests.webadmin.admin import rows, timeline_rows
from tests.webadmin.admin.test_admin_actions import give
from tests.webadmin.admin.test_front_page import words
from tests.webadmin.lanes.catalog.short import new_catalog
from tests.webadmin.service import Service, rolled_back
from webadmin.base.access.models import AuditEntry
from webadmin.base.access.services import issue_worker_credential
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.catalog.services.repositories import delete_repository
from webadmin.lanes.profiles.models import (
    Block,
    DeleteRequest,
    DeletionCertificate,
    LegalHold,
    RetentionRule,
    Tombstone,
)
from webadmin.lanes.profiles.services.rewrite_masked import rewrite_masked
from webadmin.lanes.tables.models import DataSource
from webadmin.lanes.tsdb.models import Bucket, BucketTenant, Folder

QUERIES_OF_A_REQUEST_MAX = 14


def page(operator: Client, row: object) -> str:
    name = f"admin:profiles_{row._meta.model_name}_change"
    return words(operator.get(reverse(name, args=[row.pk])).content.decode())


def listing(operator: Client, model: str, query: str = "") -> str:
    return words(operator.get(f"{reverse(f'admin:profiles_{model}_changelist')}?{query}").content.decode())


@pytest.fixture
def acme(service: Service) -> Service:
    service.add_segments(20, datasets=(("acme", "web"),))
    return service


def test_a_rule_is_previewed_with_what_it_would_drop(operator: Client, acme: Service) -> None:
    acme.clock.advance(9 * DAY_MS // 1000)
    values = {"tenant": "acme", "keep_days": "7"}
    preview = give(operator, RetentionRule, "set-retention", step="preview", **values)
    assert "Before rule for all tenants After 7 days" in preview
    assert "Under the current rule the next run drops nothing." in preview
    assert "Under the new rule it would drop 20 blocks" in preview
    assert not RetentionRule.objects.exists()
    assert "done" in give(operator, RetentionRule, "set-retention", **values)
    assert "no changes" in give(operator, RetentionRule, "set-retention", **values)
    rule = RetentionRule.objects.get()
    assert (rule.keep_days, rule.actor) == (7, "operator")
    assert "acme 7 days" in listing(operator, "retentionrule")
    assert "operator no rule 7 days because" in page(operator, rule)


def test_retention_is_previewed_and_run_from_its_page(operator: Client, acme: Service) -> None:
    acme.clock.advance(40 * DAY_MS // 1000)
    preview = give(operator, RetentionRule, "run-retention", step="preview")
    assert "Expired (1)" in preview
    assert acme.states() == {"queued": 20}
    give(operator, RetentionRule, "run-retention")
    assert acme.states() == {"dropped": 20}
    assert "retention" in listing(operator, "tombstone")


def test_a_rule_is_taken_back_from_its_page(operator: Client, service: Service) -> None:
    rule = RetentionRule.objects.create(tenant="acme", keep_days=7, actor="a", why="w")
    assert "acme" in give(operator, RetentionRule, "remove", rule.pk, step="preview")
    assert RetentionRule.objects.exists()
    assert "1 changed" in give(operator, RetentionRule, "remove", rule.pk)
    assert not RetentionRule.objects.exists()


def test_a_hold_is_placed_keeps_data_and_is_lifted(operator: Client, acme: Service) -> None:
    assert "During the hold" in give(operator, LegalHold, "place-hold", step="preview", tenant="acme")
    assert not LegalHold.objects.exists()
    give(operator, LegalHold, "place-hold", tenant="acme")
    hold = LegalHold.objects.get()
    assert "no changes" in give(operator, LegalHold, "place-hold", tenant="acme")
    asked = {"tenant": "acme", "deadline_hours": "24"}
    assert "is on legal hold" in give(operator, DeleteRequest, "request-deletion", **asked)
    assert "active" in page(operator, hold)
    assert "acme" in give(operator, LegalHold, "lift-hold", hold.pk, step="preview")
    assert "1 changed" in give(operator, LegalHold, "lift-hold", hold.pk)
    hold.refresh_from_db()
    assert hold.ended_by == "operator"
    assert set(AuditEntry.objects.values_list("action", flat=True)) >= {"place_hold", "lift_hold"}


def test_data_is_deleted_from_its_page_and_certified(operator: Client, acme: Service) -> None:
    asked = {"tenant": "acme", "service": "web", "deadline_hours": "24", "from_time": "2020-01-01 08:00"}
    with rolled_back():
        give(operator, DeleteRequest, "request-deletion", **asked)
        assert DeleteRequest.objects.get().from_ms == 1_577_865_600_000
    del asked["from_time"]
    preview = give(operator, DeleteRequest, "request-deletion", step="preview", **asked)
    assert "Blocks 20" in preview
    assert "This cannot be undone." in preview
    assert not DeleteRequest.objects.exists()
    give(operator, DeleteRequest, "request-deletion", **asked)
    request = DeleteRequest.objects.get()
    text = page(operator, request)
    assert "Under way: queries hide this data; objects are rewritten within" in text
    assert "Still in segments 20 blocks" in text
    assert "Not issued yet: it is issued when no object contains the data." in text
    Block.objects.all().delete()
    rewrite_masked(context=ActionContext(actor="control"))
    text = page(operator, request)
    assert "Done: queries hide this data" in text
    certificate = DeletionCertificate.objects.get()
    assert f"At command {certificate.command_index} no object that the index knows held data of tenant acme" in text


def test_a_certificate_is_a_file_that_stands_for_itself(operator: Client) -> None:
    rows.make_deletion()
    certificate = DeletionCertificate.objects.get()
    address = reverse("admin:profiles_deleterequest_certificate", args=[certificate.request_id, certificate.pk])
    assert address in operator.get(certificate_page(certificate)).content.decode()
    answer = operator.get(address)
    assert "attachment" in answer["Content-Disposition"]
    told = json.loads(answer.content)
    assert told["request"]["tenant"] == "acme"
    assert told["request"]["service"] == "billing"
    assert "no object that the index knows held data of tenant acme" in told["statement"]
    assert operator.get(address.replace("/certificate/", "9/certificate/")).status_code == 404
    assert Client().get(address).status_code == 302


def certificate_page(certificate: DeletionCertificate) -> str:
    return reverse("admin:profiles_deleterequest_change", args=[certificate.request_id])


def test_a_certificate_needs_the_permission_to_view_requests(db: None) -> None:
    rows.make_deletion()
    certificate = DeletionCertificate.objects.get()
    client = Client()
    client.force_login(User.objects.create(username="guest", is_staff=True))
    address = reverse("admin:profiles_deleterequest_certificate", args=[certificate.request_id, certificate.pk])
    assert client.get(address).status_code == 403
    looker = User.objects.get(username="guest")
    looker.user_permissions.add(*Permission.objects.filter(codename="view_deleterequest"))
    assert client.get(address).status_code == 200
    assert "Delete data" not in listing(client, "deleterequest")


def test_a_late_request_is_shown_as_late_first(operator: Client) -> None:
    rows.make_deletion()
    late = DeleteRequest.objects.get(selector='{pod="a-1"}')
    assert "Late by 2 h" in page(operator, late)
    shown = listing(operator, "deleterequest", "state=late")
    assert "{pod=" in shown
    assert "billing" not in shown


def test_a_tombstone_shows_why_its_object_still_exists(operator: Client) -> None:
    rows.make_deletion()
    stubborn = Tombstone.objects.get()
    shown = listing(operator, "tombstone", "state=failing")
    assert "not deleted 4 tries, again in" in shown
    text = page(operator, stubborn)
    assert "The store did not delete the object after 4 attempts: 503 Slow Down" in text
    assert "past the retention of its tenants" in text
    assert "No tombstones" in listing(operator, "tombstone", "state=deleted") or "Nothing fits" in listing(
        operator, "tombstone", "state=deleted"
    )


def test_a_changed_form_is_previewed_again_before_it_is_applied(operator: Client, service: Service) -> None:
    address = reverse("admin:profiles_retentionrule_action", args=["set-retention"])
    form = {"tenant": "acme", "keep_days": "70", "why": "w", "step": "preview"}
    seen = operator.post(address, form).context["previewed"]
    answer = operator.post(address, form | {"keep_days": "7", "step": "apply", "previewed": seen})
    assert "The preview is outdated" in answer.content.decode()
    assert not RetentionRule.objects.exists()
    operator.post(address, form | {"step": "apply", "previewed": seen})
    assert RetentionRule.objects.get().keep_days == 70


def test_the_page_of_a_request_costs_a_few_queries_however_much_it_hides(operator: Client, service: Service) -> None:
    def cost(row: DeleteRequest) -> int:
        with CaptureQueriesContext(connection) as captured:
            page(operator, row)
        return len(captured)

    grow: Callable[[int], list[str]] = service.add_segments
    grow(2)
    give(operator, DeleteRequest, "request-deletion", tenant="acme", deadline_hours="24")
    few = cost(DeleteRequest.objects.get())
    DeleteRequest.objects.all().delete()
    grow(60)
    give(operator, DeleteRequest, "request-deletion", tenant="acme", deadline_hours="24")
    assert cost(DeleteRequest.objects.get()) <= few <= QUERIES_OF_A_REQUEST_MAX


def test_the_preview_names_tables_and_repositories_that_a_deletion_does_not_touch(
    operator: Client, acme: Service, tmp_path: Path, settings: LazySettings
) -> None:
    settings.OBJECT_STORE_URL = str(tmp_path / "objects")
    timeline_rows.make_table("orders")
    timeline_rows.make_table("secret", tenant="other")
    bucket = Bucket.objects.create(name="metrics", url="s3://metrics", layout="cortex")
    for tenant in ("acme", "other"):
        folder = Folder.objects.create(bucket=bucket, name=f"{tenant}/")
        BucketTenant.objects.create(bucket=bucket, folder=folder, name=tenant)
    catalog = new_catalog(name="lake")
    delete_repository(new_catalog(name="pond").repository, context=ActionContext(actor="tester"))
    new_catalog(tenant="other", name="hidden")
    preview = give(operator, DeleteRequest, "request-deletion", step="preview", tenant="acme", deadline_hours="24")
    out = StringIO()
    call_command("delete_data", "acme", "--dry-run", stdout=out)
    bearer = issue_worker_credential(name="ops", scopes=["operate"], actor="test").wire_form
    answer = operator.post(
        "/api/v1/operations/delete-requests",
        {"tenant": "acme", "why": "a test", "dry_run": True},
        content_type="application/json",
        headers={"Authorization": f"Bearer {bearer}"},
    )
    for text in (preview, out.getvalue(), "\n".join(answer.json()["kept"])):
        assert "Prometheus blocks in 1 bucket (metrics): not hidden" in text
        assert "1 table (orders): not hidden and not rewritten" in text
        assert "2 repositories of the catalog (lake; pond, deleted): not hidden" in text
        assert "secret" not in text
        assert "hidden)" not in text
    give(operator, DeleteRequest, "request-deletion", tenant="acme", deadline_hours="24")
    assert DataSource.objects.filter(tenant="acme").count() == 1
    assert catalog.visible() == {}
