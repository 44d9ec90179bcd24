"""The pages of catalogs: what makes a branch slow, what is done about it; orders do what their preview says."""

from __future__ import annotations

import os
import re
from io import StringIO
from pathlib import Path

import pytest
from django.conf import LazySettings
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from tests.webadmin.admin.catalog_rows import fill_catalog, make_repository
from tests.webadmin.admin.test_admin_actions import give
from tests.webadmin.admin.test_front_page import words
from tests.webadmin.lanes.catalog.short import CONTEXT, Catalog, new_catalog
from webadmin.base.access.models import AuditEntry
from webadmin.lanes.catalog.actions import form_values
from webadmin.lanes.catalog.api.models import ImportRun
from webadmin.lanes.catalog.branch_loads import watched_branches
from webadmin.lanes.catalog.lane_models import BranchWatch, Collection, CompactionPolicy
from webadmin.lanes.catalog.models import Branch, BranchLoad, CondemnedObject, Repository
from webadmin.lanes.catalog.places import catalog_store, data_prefix_of
from webadmin.lanes.catalog.samples import catalog_samples
from webadmin.lanes.catalog.services.repositories import delete_repository
from webadmin.lanes.catalog.states import RepositoryState


def page(operator: Client, name: str, *arguments: object) -> str:
    return words(operator.get(reverse(f"admin:catalog_{name}", args=arguments)).content.decode())


def test_lists_and_pages_show_what_makes_a_branch_slow(operator: Client) -> None:
    repository = fill_catalog()
    branches = page(operator, "branch_changelist")
    assert re.search(
        r"ingest acme/lake 6 over its base 5 61 725 rows 5 min( \d+ s)? about 5 000 about 1 500 2 a compaction of the",
        branches,
    )
    assert "the branch is in its cooldown ended" in branches
    told = page(operator, "branch_change", Branch.objects.get(name="ingest").pk)
    assert "Layers 6 over its base" in told
    assert "Staged now 3 rows in the staging token Sealed" in told
    assert "Tombstones about 1 500" in told
    assert "Now a compaction of the branch is waiting or running" in told
    assert "Sealed tokens: 5 of 4; Age of a sealed token: 5 min" in told
    assert "Tombstones: 1 500 of 500; Rows in sealed tokens: 61 725 of 50 000; Sealed" in told
    assert re.search(
        r"lake acme 3 8 most on ingest about 1 500 1 in an hour 8.6 MiB written, 1 lost a race 1 file "
        r"looked for (2 h|1 h 59 min) ago",
        page(operator, "repository_changelist"),
    )
    whole = page(operator, "repository_change", repository.pk)
    assert "1 compaction failed within an hour" in whole
    assert "Nothing is deleted: get &#x27;ranges/aa/aa01&#x27;: no such object" in whole
    assert "listings are slow Tombstones: 1 000 → 500" in whole
    assert re.search("1 min 24 690 . lost head: the head moved", whole)
    assert "Bytes an hour 59.6 GiB" in whole
    assert "Rows in one process 5 000 000" in whole
    assert "Days of history all" in whole
    assert "lost a race" in page(operator, "compaction_changelist")


def test_metrics_have_the_same_values(db: None) -> None:
    fill_catalog()
    told = {name: dict(samples) for name, samples in catalog_samples(1)}
    ends = told.pop("lithify_catalog_compactions")
    assert ends == {("acme", "lake", state): 1 for state in ("published", "lost", "failed", "ended")}
    oldest = told.pop("lithify_catalog_oldest_sealed_seconds")["acme", "lake"]
    assert 300 <= oldest < 360
    assert {name.removeprefix("lithify_catalog_"): each["acme", "lake"] for name, each in told.items()} == {
        "sealed_tokens": 8,
        "tombstones": 1500,
        "wanted_branches": 0,
        "compaction_seconds": 60,
        "compaction_bytes": 9_000_000,
        "orphans": 1,
        "retired_tokens": 0,
        "collection_failed": 1,
    }
    assert all(samples == [] for _, samples in catalog_samples(0)), "so many repositories at most"


def test_imports_are_listed_with_what_became_of_them(operator: Client) -> None:
    fill_catalog()
    told = words(operator.get(reverse("admin:catalog_api_importrun_changelist")).content.decode())
    assert re.search(r"failed 250 000 1 h ingest has uncommitted changes", told), told[-900:]
    assert re.search(r"ingest acme/lake [^a-z]* died 500 000 55 min", told), told[-900:]
    one = ImportRun.objects.get(state="failed")
    whole = words(operator.get(reverse("admin:catalog_api_importrun_change", args=[one.pk])).content.decode())
    assert "Import into ingest of acme/lake" in whole
    assert "Objects 250 000" in whole


def test_the_front_page_lists_catalogs(operator: Client) -> None:
    cache.clear()
    fill_catalog()
    text = words(operator.get("/admin/").content.decode())
    assert "acme/lake compactions fail 3 8 about 1 500 1 in an hour" in text
    cache.clear()


def test_thresholds_are_changed_with_a_preview_and_a_history(operator: Client) -> None:
    repository = make_repository()
    values = {name: str(value) for name, value in form_values([repository]).items()}
    told = give(
        operator, Repository, "change-compaction", repository.pk, step="preview", **values | {"sealed_tokens": "9"}
    )
    assert "Sealed tokens 4 9" in told
    assert not CompactionPolicy.objects.exists()
    give(operator, Repository, "change-compaction", repository.pk, **values | {"sealed_tokens": "9"})
    assert CompactionPolicy.objects.get().sealed_tokens == 9
    assert "Sealed tokens: 4 → 9" in page(operator, "repository_change", repository.pk)
    told = give(operator, Repository, "change-compaction", repository.pk, **values | {"here_bytes": "a lot"})
    assert "Enter a size such as 500 MiB" in told


def test_a_branch_is_compacted_now_by_order(operator: Client) -> None:
    fill_catalog()
    main, busy = (Branch.objects.get(name=name) for name in ("main", "ingest"))
    give(operator, Branch, "compact-now", main.pk, step="preview")
    assert not BranchWatch.objects.filter(branch=main).exists()
    give(operator, Branch, "compact-now", main.pk)
    assert BranchWatch.objects.get(branch=main).ordered_by == "operator"
    assert "is under way" in give(operator, Branch, "compact-now", busy.pk)


@pytest.fixture
def waste(db: None, tmp_path: Path, settings: LazySettings) -> Repository:
    """A repository whose objects include one, of 1970, that nothing names."""
    settings.OBJECT_STORE_URL = str(tmp_path / "objects")
    repository = new_catalog().repository
    info = catalog_store().put(data_prefix_of(repository) + "waste", b"12345")
    os.utime(tmp_path / "objects" / info.key, (0, 0))
    return repository


def test_the_preview_of_a_collection_shows_its_deletions_and_deletes_nothing(
    operator: Client, waste: Repository
) -> None:
    told = give(operator, Repository, "collect-garbage", waste.pk, step="preview")
    assert "Objects condemned: deleted by a later round 1" in told
    assert not Collection.objects.exists()
    give(operator, Repository, "collect-garbage", waste.pk)
    assert Collection.objects.get().objects_condemned == 1
    CondemnedObject.objects.update(since_ms=0)
    told = give(operator, Repository, "collect-garbage", waste.pk, step="preview")
    assert "Objects deleted 1" in told
    assert "data/waste" in told
    give(operator, Repository, "collect-garbage", waste.pk)
    assert list(catalog_store().list(data_prefix_of(waste))) == []
    done = Collection.objects.latest("pk")
    assert (done.actor, done.objects_deleted, done.bytes_deleted) == ("operator", 1, 5)


def test_a_deleted_repository_shows_its_restore_deadline_and_is_restored(operator: Client, waste: Repository) -> None:
    address = reverse("admin:catalog_repository_change", args=[waste.pk])
    assert "action/restore" not in operator.get(address).content.decode()
    delete_repository(waste, context=CONTEXT)
    assert "deleted" in page(operator, "repository_changelist")
    assert "action/collect-garbage" not in operator.get(address).content.decode()
    told = page(operator, "repository_change", waste.pk)
    assert re.search(r"Deleted .* It can be restored until .*; then its files are deleted", told)
    give(operator, Repository, "restore", waste.pk, step="preview")
    assert Repository.objects.get().state == RepositoryState.DELETED
    give(operator, Repository, "restore", waste.pk)
    assert Repository.objects.get().state == RepositoryState.ACTIVE
    assert AuditEntry.objects.get(action="catalog_restore_repository").actor == "operator"


def test_tombstones_of_a_branch_are_one_number_everywhere(operator: Client, waste: Repository) -> None:
    """A key that is deleted again and again is one row, and was counted each time."""
    catalog = Catalog(waste)
    catalog.puts(a="1", b="1")
    catalog.commit()
    catalog.delete("a")
    BranchLoad.objects.update_or_create(pk=int(catalog.record().uid), defaults={"rows": 32, "tombstones": 32})
    [one] = watched_branches()
    expected = "about 32"
    out = StringIO()
    call_command("catalog", "status", stdout=out)
    texts = [page(operator, name) for name in ("branch_changelist", "repository_changelist")]
    texts += [page(operator, "branch_change", one.branch.pk), page(operator, "repository_change", waste.pk)]
    assert [expected in text for text in [*texts, out.getvalue()]] == [True] * 5
    assert not any(re.search("1 tombstone", text) for text in texts)
