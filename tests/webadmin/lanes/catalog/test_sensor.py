"""The sensor over real rows: what it counts, why it fires or does not, and that it forgets nothing with a process."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from engine.lanes.catalog.view import Page
from tests.webadmin.lanes.catalog.compactor import Compactor
from tests.webadmin.lanes.catalog.short import CONTEXT
from webadmin.base.access.models import AuditEntry
from webadmin.lanes.catalog.errors import BranchBusy, CatalogRefused
from webadmin.lanes.catalog.lane_models import BranchWatch, Compaction, CompactionPolicy
from webadmin.lanes.catalog.models import BranchLoad, BranchToken
from webadmin.lanes.catalog.services.branches import find_branch
from webadmin.lanes.catalog.services.compaction.change_compaction import change_policy, order_compaction
from webadmin.lanes.catalog.services.compaction.count_load import note_listing, note_writes
from webadmin.lanes.catalog.services.records import seal_branch
from webadmin.lanes.catalog.states import CompactionState, Why


def branch_id(compactor: Compactor, name: str = "main") -> int:
    return find_branch(compactor.catalog.repository, name).pk


def seal(compactor: Compactor, **values: str) -> None:
    """Stage some entries, and leave them behind as a commit does that dies."""
    compactor.catalog.puts(**values)
    seal_branch(branch_id(compactor), why=Why.COMMIT)


@pytest.mark.row("B76", "B77")
def test_tombstone_counts_of_all_processes_add_up_and_survive_them(compactor: Compactor) -> None:
    """Over all tokens, and nothing is dropped: what is below the threshold on each of two branches is no reason."""
    compactor.set(tombstones=20)
    compactor.catalog.branch("other")
    for name in ("main", "other"):
        compactor.catalog.puts(name, a="1")
        note_writes(branch_id(compactor, name), tombstones=16)
    assert compactor.sense().begun == []
    note_writes(branch_id(compactor, "other"), tombstones=16)
    assert compactor.sense().begun == ["acme/repo/other"]
    assert compactor.last().cause == "tombstones 32 of 20"
    compactor.finish()
    assert not BranchLoad.objects.filter(pk=branch_id(compactor, "other")).exists(), "it begins anew"
    assert compactor.sense().begun == []


@pytest.mark.parametrize(
    ("limits", "cause"),
    [
        ({"sealed_rows": 3}, "sealed_rows 3 of 3"),
        ({"sealed_tokens": 2}, "sealed_tokens 2 of 2"),
        ({"sealed_age_seconds": 60}, "sealed_age_s 61 of 60"),
        ({"tombstones": 1}, "tombstones 1 of 1"),
    ],
)
def test_what_is_left_behind_in_sealed_tokens_is_a_reason(
    compactor: Compactor, limits: dict[str, Any], cause: str
) -> None:
    """Debt that commits leave behind has somebody who pays it."""
    compactor.catalog.puts(x="1")
    compactor.catalog.commit()
    compactor.set(**limits)
    assert compactor.sense().begun == []
    seal(compactor, a="1", b="1")
    compactor.service.clock.advance(61)
    compactor.catalog.delete("x")
    seal(compactor)
    BranchLoad.objects.all().delete()  # the counters may be lost: what the tokens say is still there
    assert compactor.sense().begun == ["acme/repo/main"]
    assert compactor.last().cause == cause
    counted = BranchToken.objects.exclude(row_count=None).order_by("pk")
    assert list(counted.values_list("row_count", "tombstone_count"))[-2:] == [(2, 0), (1, 1)]


def test_listings_that_walk_far_are_a_reason(compactor: Compactor) -> None:
    compactor.set(wasteful_lists=2)
    compactor.catalog.puts(a="1")
    short, long = Page((), None, 10, 10), Page((), None, 3000, 10)
    note_listing(branch_id(compactor), short)
    note_listing(branch_id(compactor), long)
    assert compactor.sense().begun == []
    note_listing(branch_id(compactor), long)
    assert compactor.sense().begun == ["acme/repo/main"]


def test_a_sensor_that_does_not_fire_has_a_reason(compactor: Compactor) -> None:
    compactor.set(sealed_tokens=1, is_enabled=False)
    seal(compactor, a="1")
    compactor.sense()
    assert compactor.watch().held == "compaction is disabled for the repository"
    compactor.set(sealed_tokens=1, is_enabled=True, running_max=1, cooldown_seconds=100)
    compactor.catalog.branch("other")
    compactor.catalog.puts("other", a="1")
    seal_branch(branch_id(compactor, "other"), why=Why.COMMIT)
    assert compactor.sense().begun == ["acme/repo/main"]
    assert compactor.watch("other").held == "the repository's budget is exhausted"
    assert compactor.watch("other").reason == "sealed_tokens 1 of 1"
    compactor.sense()
    assert compactor.watch().held == "a compaction of the branch is waiting or running"
    compactor.finish()
    assert compactor.sense().begun == ["acme/repo/other"]
    seal(compactor, b="1")
    compactor.sense()
    assert compactor.watch().held == "the branch is in its cooldown"
    assert compactor.watch().ready_ms == compactor.service.clock.now_ms + 100_000


def test_bytes_of_an_hour_are_a_budget(compactor: Compactor) -> None:
    compactor.set(sealed_tokens=1, cooldown_seconds=0, bytes_per_hour=1)
    seal(compactor, a="1")
    compactor.sense()
    compactor.finish()
    seal(compactor, b="1")
    compactor.service.clock.advance(60)
    assert compactor.sense().begun == []
    assert compactor.watch().held == "the repository's budget is exhausted"
    compactor.service.clock.advance(3600)
    assert compactor.sense().begun == ["acme/repo/main"]


def test_a_read_only_repository_is_compacted_by_order_only(compactor: Compactor) -> None:
    """Row 34 of the interleavings."""
    seal(compactor, a="1")
    repository = compactor.catalog.repository
    repository.is_read_only = True
    repository.save()
    assert compactor.sense().begun == []
    order_compaction(find_branch(repository, "main"), context=CONTEXT)
    assert compactor.sense().begun == ["acme/repo/main"]
    done = compactor.last()
    assert (done.is_ordered, done.cause) == (True, "a test")
    with pytest.raises(BranchBusy):
        order_compaction(find_branch(repository, "main"), context=CONTEXT)
    compactor.finish()
    assert compactor.sense().begun == []


def test_a_round_costs_as_much_after_a_thousand_compactions(compactor: Compactor) -> None:
    seal(compactor, a="1")
    compactor.set(sealed_tokens=2)
    compactor.sense()
    with CaptureQueriesContext(
        connection,
    ) as first:
        compactor.sense()
    told = {
        "repository": compactor.catalog.repository,
        "branch_id": branch_id(compactor),
        "state": CompactionState.PUBLISHED,
        "cause": "",
        "build_id": 0,
        "begun_ms": 0,
        "finished_ms": 1,
    }
    Compaction.objects.bulk_create(Compaction(**told) for _ in range(1000))
    with CaptureQueriesContext(connection) as second:
        compactor.sense()
    assert len(second) == len(first) < 20
    for name in range(5):
        compactor.catalog.branch(f"other-{name}")
        compactor.catalog.puts(f"other-{name}", a="1")
        seal_branch(branch_id(compactor, f"other-{name}"), why=Why.COMMIT)
    compactor.sense()
    with CaptureQueriesContext(connection) as third:
        compactor.sense()
    assert len(third) == len(first)


def test_settings_are_checked_kept_and_audited(compactor: Compactor) -> None:
    repository = compactor.catalog.repository
    CompactionPolicy.objects.all().delete()
    assert change_policy(repository, {"tombstones": 1000}, context=CONTEXT) == {}, "that is the default"
    assert change_policy(repository, {"tombstones": 7, "is_enabled": False}, context=CONTEXT) == {
        "tombstones": 7,
        "is_enabled": False,
    }
    entry = AuditEntry.objects.filter(action="catalog_change_compaction").get()
    assert entry.detail["before"] == {"tombstones": 1000, "is_enabled": True}
    for wrong in ({"tombstones": -1}, {"tombstones": "7"}, {"nothing": 1}, {"tokens_cap": 0}, {"is_enabled": 2}):
        with pytest.raises(CatalogRefused, match=next(iter(wrong))):
            change_policy(repository, wrong, context=CONTEXT)
    assert CompactionPolicy.objects.get().tombstones == 7


@pytest.mark.row("B78")
def test_a_deleted_branch_loses_its_counts_and_late_counts_are_harmless(
    compactor: Compactor,
) -> None:
    compactor.catalog.branch("other")
    seal_branch(branch_id(compactor, "other"), why=Why.COMMIT)
    compactor.catalog.puts("other", a="1")
    seal_branch(branch_id(compactor, "other"), why=Why.COMMIT)
    compactor.set(sealed_tokens=9)
    compactor.sense()
    gone = branch_id(compactor, "other")
    find_branch(compactor.catalog.repository, "other").delete()
    note_writes(gone, tombstones=100)
    assert compactor.sense().failed == {}
    assert not BranchWatch.objects.exists()
