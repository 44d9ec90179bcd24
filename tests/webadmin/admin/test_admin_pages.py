"""Every page of the admin answers, to those who may see it, and none of the read-only ones changes anything."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from tests.webadmin.admin import catalog_rows, rows, timeline_rows, tsdb_rows
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.base.access.models import WorkerCredential
from webadmin.schedule.models import Job

SHOWN = [model for model, page in admin.site._registry.items() if isinstance(page, ReadOnlyAdmin)]


def address(model: type[Model], page: str = "changelist", *arguments: object) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=arguments)


@pytest.mark.parametrize("model", admin.site._registry, ids=lambda model: model._meta.label_lower)
def test_every_list_answers_when_it_is_empty(operator: Client, model: type[Model]) -> None:
    assert operator.get(address(model)).status_code == 200


def test_every_list_and_every_row_of_a_filled_database_answers(operator: Client) -> None:
    rows.fill()
    tsdb_rows.fill_tsdb()
    timeline_rows.fill_timeline()
    catalog_rows.fill_catalog()
    for model in SHOWN:
        assert operator.get(address(model)).status_code == 200
        shown = list(model._default_manager.all())
        assert shown, f"the filled database has no {model._meta.verbose_name}"
        for row in shown:
            answer = operator.get(address(model, "change", row.pk))
            assert answer.status_code == 200, row
            assert str(row) in answer.content.decode() or row.pk == 1


@pytest.mark.parametrize("model", SHOWN, ids=lambda model: model._meta.label_lower)
@pytest.mark.parametrize("object_id", ["999999", "x", "1" * 40, "1_2"])
def test_a_row_that_is_not_there_leads_back_to_the_front_page(
    operator: Client, model: type[Model], object_id: str
) -> None:
    answer = operator.get(address(model, "change", object_id))
    assert (answer.status_code, answer["Location"]) == (302, reverse("admin:index"))


@pytest.mark.parametrize("model", SHOWN, ids=lambda model: model._meta.label_lower)
def test_rows_are_neither_added_nor_deleted_here(operator: Client, model: type[Model]) -> None:
    assert operator.get(address(model, "add")).status_code == 403
    assert operator.post(address(model, "delete", 1), {"post": "yes"}).status_code in (302, 403)


def test_a_posted_form_changes_nothing(operator: Client) -> None:
    job = rows.make_job("j", "waiting")
    operator.post(address(Job, "change", job.pk), {"name": "other", "state": "done"})
    operator.post(address(Job), {"action": "delete_selected", "_selected_action": [job.pk]})
    assert list(Job.objects.values_list("name", "state")) == [("j", "waiting")]


def test_strangers_are_sent_to_the_login(db: None) -> None:
    answer = Client().get(address(Job))
    assert answer.status_code == 302
    assert reverse("admin:login") in answer["Location"]


def test_operators_see_what_they_were_given_and_no_more(db: None) -> None:
    clerk = User.objects.create(username="clerk", is_staff=True)
    clerk.user_permissions.add(Permission.objects.get(codename="view_job"))
    job, client = rows.make_job("j"), Client()
    client.force_login(clerk)
    assert client.get(address(Job, "change", job.pk)).status_code == 200
    assert client.get(address(WorkerCredential)).status_code == 403
    credential = rows.make_worker().credential
    assert client.get(address(WorkerCredential, "change", credential.pk)).status_code == 403
    side_bar = client.get(address(Job)).content.decode()
    assert address(Job) in side_bar
    assert address(WorkerCredential) not in side_bar


def test_no_page_shows_the_hash_of_a_secret(operator: Client) -> None:
    credential = rows.make_worker().credential
    WorkerCredential.objects.filter(pk=credential.pk).update(secret_hash="d0d0caca" * 8)
    for page in (address(WorkerCredential), address(WorkerCredential, "change", credential.pk)):
        text = operator.get(page).content.decode()
        assert credential.key_id in text
        assert "d0d0caca" not in text


def test_the_theme_is_served_without_collecting_files_first(operator: Client) -> None:
    for path in ("unfold/css/styles.css", "console/console.css", "console/lithify.svg"):
        answer = operator.get(f"/static/{path}")
        assert answer.status_code == 200
        assert len(b"".join(answer.streaming_content)) > 300
