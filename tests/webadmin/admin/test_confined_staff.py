"""Staff limited to a tenant, with every permission: their rows on each list, other tenants' names on no page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.db.models import Model
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from tests.webadmin.admin import catalog_rows, placement_rows, rows, timeline_rows, tsdb_rows
from webadmin.adminkit.read_only import ROWS_PER_PAGE
from webadmin.base.access.confinement import ConfinedManager, confine, tenant_path
from webadmin.lanes.catalog.api.models import ImportRun
from webadmin.lanes.catalog.models import Repository
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.models import Block, DeadLetter
from webadmin.lanes.tables.models import DataSource
from webadmin.schedule.models import Job

OURS, THEIRS = "acme", "zeta"
OTHERS = ("umbrella", "initech", THEIRS)
ROWS_WALKED = 3
"""Pages of rows that are opened for each model."""
CONFINED = [model for model in admin.site._registry if tenant_path(model) is not None]
CLOSED = [model for model in admin.site._registry if model not in CONFINED]


def staff(tenant: str) -> Client:
    """Return the browser of somebody in the tenant's group who was given every permission."""
    user = User.objects.create(username=f"of-{tenant}", is_staff=True)
    user.groups.add(Group.objects.get_or_create(name=f"tenant:{tenant}")[0])
    user.user_permissions.set(Permission.objects.all())
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def filled(db: None) -> None:
    """Rows of one tenant in every table that has tenants, and some of others."""
    rows.fill()
    tsdb_rows.fill_tsdb()
    timeline_rows.fill_timeline()
    catalog_rows.fill_catalog()
    placement_rows.fill_placement()
    rows.make_tenant(THEIRS)
    rows.make_quarantine(rows.make_block("parked", tenant=OURS, level=1))
    DeadLetter.objects.filter(pk=DeadLetter.objects.first().pk).update(tenant=OURS)


def address(model: type[Model], page: str = "changelist", *arguments: object) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=arguments)


def patterns(resolver: URLResolver, prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    for pattern in resolver.url_patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield path, pattern
        else:
            yield from patterns(pattern, path)


def every_address() -> Iterator[str]:
    """Yield every address of the admin, with the ids of all rows in those of rows' pages."""
    models = {f"{model._meta.app_label}_{model._meta.model_name}": model for model in admin.site._registry}
    for path, pattern in patterns(get_resolver()):
        if not path.startswith("admin/") or "logout" in path:
            continue
        name = (pattern.name or "").rpartition("_")[0]
        if "<path:object_id>" in path and name in models:
            for row in models[name]._base_manager.all()[:ROWS_WALKED]:
                yield "/" + path.replace("<path:object_id>", str(row.pk))
        elif "<int:" in path and "timeline" in path:
            for row in DataSource._base_manager.all():
                yield "/" + path[: path.index("<int:")] + str(row.pk) + path[path.index(">") + 1 :]
        elif "<" not in path and "(" not in path:
            yield "/" + path


def test_confined_staff_see_no_name_of_another_tenant_on_any_page(filled: None) -> None:
    ours, theirs, seen = staff(OURS), staff(THEIRS), 0
    jobs = [row.name for row in Job.objects.filter(tenant=OURS)]
    blocks = [row.ulid for row in Block.objects.filter(tenant__name=OURS)]
    asked = [
        reverse("placement-page") + "?tenant=acme&dataset=checkout",
        reverse("placement-page") + "?ask=1&add=-",
        *(reverse("standstill-page") + f"?name={block}" for block in blocks),
    ]
    for place in [*every_address(), *asked]:
        text = theirs.get(place).content.decode()
        assert OURS not in text, place
        assert not [job for job in jobs if job in text], place
        if place.endswith(("/add/", "/history/", "/delete/")) or "/auth/" in place:
            continue  # closed to both in the same way
        text = ours.get(place).content.decode()
        assert not [name for name in OTHERS if name in text], place
        seen += OURS in text
    assert seen > 50, "the walk met hardly any page with rows of the tenant"


def test_each_list_has_the_rows_of_the_tenant_and_no_others(filled: None) -> None:
    client = staff(OURS)
    for model in CONFINED:
        with confine({OURS}):
            own = [row.pk for row in model._default_manager.all()]
        if model is not ImportRun:  # the filled database has none
            assert own, f"the filled database has no {model._meta.verbose_name} of the tenant"
        page = client.get(address(model))
        assert page.status_code == 200
        shown = page.context["cl"]
        assert {row.pk for row in shown.result_list} <= set(own), model
        assert (shown.result_count, len(shown.result_list)) == (len(own), min(len(own), ROWS_PER_PAGE)), model
        for row in model._base_manager.exclude(pk__in=own)[:2]:
            assert client.get(address(model, "change", row.pk)).status_code == 302, row


def test_what_has_no_tenant_is_closed(filled: None) -> None:
    client = staff(OURS)
    for model in CLOSED:
        assert client.get(address(model)).status_code == 403, model
        for row in model._base_manager.all()[:1]:
            assert client.get(address(model, "change", row.pk)).status_code in (302, 403), row


def test_they_change_nothing(filled: None) -> None:
    client = staff(OURS)
    row = DataSource.objects.get(tenant=OURS, name="orders")
    order = reverse("admin:tables_datasource_action", args=["change-policy"])
    assert client.post(order, {"ids": row.pk, "step": "apply", "why": "a test"}).status_code in (403, 404)
    assert not client.get(address(DataSource, "change", row.pk)).context["action_links"]


def test_the_front_page_counts_what_is_theirs(filled: None) -> None:
    for tenant in (OURS, THEIRS):
        page = staff(tenant).get(reverse("admin:index"))
        jobs = next(tile for tile in page.context["tiles"] if tile.title == "Jobs leased")
        assert jobs.number == str(Job.objects.filter(tenant=tenant, state="leased").count())


def test_rules_for_everybody_are_seen_by_each_tenant(db: None) -> None:
    with confine({"nobody-yet"}):
        assert LevelPolicy.objects.filter(tenant="").count() == LevelPolicy._base_manager.filter(tenant="").count() > 0


def test_several_tenants_all_tenants_and_superusers(db: None) -> None:
    catalog_rows.make_repository("a", "acme")
    catalog_rows.make_repository("z", "zeta")
    several = staff("acme")
    User.objects.get(username="of-acme").groups.add(Group.objects.create(name="tenant:zeta"))
    everybody, root = staff("*"), Client()
    root.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    User.objects.get(username="root").groups.add(Group.objects.get(name="tenant:acme"))
    for client in (several, everybody, root):
        assert len(client.get(address(Repository)).context["cl"].result_list) == 2


def test_every_confined_model_has_the_manager_of_the_rule(db: None) -> None:
    confined = [model for model in apps.get_models() if isinstance(model._default_manager, ConfinedManager)]
    assert len(confined) >= 56
    for model in confined:
        with confine({"x"}):
            assert not model._default_manager.filter(pk=None).exists(), "a column that is not there would raise"
