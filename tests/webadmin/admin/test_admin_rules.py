"""Limits in force, and level policies: seen by tenant, changed with a preview, with their history."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.webadmin.admin.test_admin_actions import LIMIT, give
from tests.webadmin.admin.test_front_page import words
from tests.webadmin.service import Service
from webadmin.lanes.profiles.level_models import LevelPolicy, LevelQueue
from webadmin.lanes.profiles.operator_queries import queues_for_list
from webadmin.schedule.models import Limits
from webadmin.schedule.operation_models import LimitChange, Pause
from webadmin.schedule.operator_queries import command_now_ms

OWN = {"tenant": "acme", "level": "1", "lane": "profiles"}


def page(operator: Client, row: Any) -> str:
    name = f"admin:{row._meta.app_label}_{row._meta.model_name}_change"
    return words(operator.get(reverse(name, args=[row.pk])).content.decode())


def of_all_tenants(level: int) -> LevelPolicy:
    return LevelPolicy.objects.get(level=level, tenant="")


def test_a_change_of_a_policy_is_previewed_with_what_polls_would_plan(operator: Client, service: Service) -> None:
    service.add_segments(12)
    policy = of_all_tenants(0)
    preview = give(operator, LevelPolicy, "change", policy.pk, step="preview", blocks_max="4")
    assert "Blocks at most 20 4" in preview
    assert "12 blocks in 1 queue wait under this policy." in preview
    assert "no jobs of no blocks under the current policy and 3 jobs of 12 blocks under the new one" in preview
    assert "Planned with these numbers (3)" in preview
    policy.refresh_from_db()
    assert policy.blocks_max == 20
    assert "1 changed" in give(operator, LevelPolicy, "change", policy.pk, blocks_max="4")
    policy.refresh_from_db()
    assert policy.blocks_max == 4
    assert "operator blocks at most 20 to 4 because" in page(operator, policy)


def test_the_form_of_a_change_shows_the_numbers_that_hold(operator: Client, service: Service) -> None:
    policy = of_all_tenants(1)
    address = reverse("admin:profiles_levelpolicy_action", args=["change"])
    form = operator.get(address, {"ids": policy.pk}).context["form"]
    assert form["blocks_max"].value() == policy.blocks_max
    assert form["age_seconds"].value() == policy.age_seconds


def test_a_tenant_gets_a_policy_of_its_own_and_gives_it_back(operator: Client, service: Service) -> None:
    assert "1 changed" in give(operator, LevelPolicy, "set", blocks_max="7", **OWN)
    own = LevelPolicy.objects.get(tenant="acme", level=1)
    assert (own.blocks_max, own.age_seconds) == (7, of_all_tenants(1).age_seconds)
    listing = words(operator.get(reverse("admin:profiles_levelpolicy_changelist") + "?whose=own").content.decode())
    assert "acme 7" in listing
    preview = give(operator, LevelPolicy, "remove", own.pk, step="preview")
    assert "Blocks at most 7 value for all tenants" in preview
    assert "1 changed" in give(operator, LevelPolicy, "remove", own.pk)
    assert not LevelPolicy.objects.filter(tenant="acme").exists()
    assert "the default policy cannot be removed" in give(operator, LevelPolicy, "remove", of_all_tenants(1).pk)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"blocks_max": "0"}, "outside 1 to 1000"),
        ({"blocks_max": "1001"}, "less than or equal to 1000"),
        ({"bytes_max": "5"}, "outside 0 or"),
        ({"level": "77", "blocks_max": "3"}, "merges nothing of level 77"),
        ({"lane": "x", "blocks_max": "3"}, "merges nothing of level 1"),
    ],
)
def test_impossible_policies_are_refused_at_the_form(
    operator: Client, service: Service, values: dict[str, str], complaint: str
) -> None:
    before = list(LevelPolicy.objects.values())
    assert complaint in give(operator, LevelPolicy, "set", step="preview", **OWN | values)
    assert complaint in give(operator, LevelPolicy, "set", **OWN | values)
    assert list(LevelPolicy.objects.values()) == before


def test_a_queue_is_explained_by_the_policy_of_its_tenant(operator: Client, service: Service) -> None:
    give(operator, LevelPolicy, "set", blocks_max="7", **OWN)
    for tenant in ("acme", "umbrella", "a"):
        LevelQueue.objects.create(lane="profiles", tenant=tenant, shard=1, level=1)
    everybody = of_all_tenants(1).blocks_max
    found = {row.tenant: row.blocks_max for row in queues_for_list(command_now_ms()).filter(level=1)}
    assert found == {"acme": 7, "umbrella": everybody, "a": everybody}


def test_the_limits_page_shows_values_in_force_until_when_and_what_follows(operator: Client, service: Service) -> None:
    limits = Limits.objects.get()
    text = page(operator, limits)
    assert "Maximum failures per job 3 built-in default" in text
    give(operator, LimitChange, "set-limit", **LIMIT)
    text = page(operator, limits)
    assert "Maximum failures per job 9 1 h left operator a bad hour 3 Change" in text


def test_the_limits_page_leads_to_the_order_with_the_limit_chosen(operator: Client, service: Service) -> None:
    address = reverse("admin:schedule_limitchange_action", args=["set-limit"])
    limits = operator.get(reverse("admin:schedule_limits_change", args=[1])).content.decode()
    assert f"{address}?limit=failures_max" in limits
    form = operator.get(address, {"limit": "failures_max"}).context["form"]
    assert (form["limit"].value(), form["for_seconds"].value()) == ("failures_max", 3600)


@pytest.mark.parametrize(
    ("kind", "value"), [("global", ""), ("lane", "profiles"), ("tenant", "acme"), ("tenant", ""), ("level", "2")]
)
@pytest.mark.parametrize("mode", ["pause", "drain"])
def test_each_part_of_the_schedule_is_paused_and_resumed_from_pages(
    operator: Client, service: Service, kind: str, value: str, mode: str
) -> None:
    values = {"scope_kind": kind, "scope_value": value, "mode": mode, "for_seconds": ""}
    assert "Expected changes" in give(operator, Pause, "pause", step="preview", **values)
    give(operator, Pause, "pause", **values)
    row = Pause.objects.get()
    assert (row.scope_kind, row.scope_value, row.mode, row.ended_at_ms) == (kind, value, mode, None)
    assert "Paused by an operator" in words(operator.get("/admin/").content.decode())
    assert "1 changed" in give(operator, Pause, "resume", row.pk)
    assert "Paused by an operator" not in words(operator.get("/admin/").content.decode())
