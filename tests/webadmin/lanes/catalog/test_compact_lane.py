"""Compactions of branches through the one schedule: nothing that is visible changes, whatever comes between, and what
somebody else has overtaken is never seen."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest
from django.test import RequestFactory

from engine.lanes.catalog.plan.branch import BranchRecord
from engine.schedule.model import AttemptOutcome, JobState
from engine.storage import StorageError
from tests.webadmin.lanes.catalog.compactor import Compactor
from tests.webadmin.lanes.catalog.short import CONTEXT, Catalog
from tests.webadmin.probes import probe
from tests.webadmin.service import check_invariants
from webadmin.console.pages import front_page
from webadmin.lanes.catalog.branch_loads import watched_branches
from webadmin.lanes.catalog.errors import BranchBusy
from webadmin.lanes.catalog.explain import explain_branch
from webadmin.lanes.catalog.lane_models import Compaction
from webadmin.lanes.catalog.models import Build, CondemnedFile
from webadmin.lanes.catalog.places import catalog_store
from webadmin.lanes.catalog.repository_sections import sensor_words, state_badge
from webadmin.lanes.catalog.samples import catalog_samples
from webadmin.lanes.catalog.services.branches import delete_branch, find_branch
from webadmin.lanes.catalog.services.compaction.change_compaction import order_compaction
from webadmin.lanes.catalog.services.compaction.compact_branch import begin_compaction
from webadmin.lanes.catalog.services.compaction.end_compactions import GATHER_MS_MAX
from webadmin.lanes.catalog.services.records import seal_branch
from webadmin.lanes.catalog.services.reset_branch import reset_branch
from webadmin.lanes.catalog.services.write_objects import delete_prefix
from webadmin.lanes.catalog.states import CompactionState, Why
from webadmin.lanes.catalog.status import statuses
from webadmin.schedule.explain import explain_name
from webadmin.schedule.models import Attempt, Command, Job
from webadmin.schedule.register import JobFilter, parked_jobs
from webadmin.schedule.services.requeue_jobs import requeue
from webadmin.schedule.services.return_job_blocks import return_job_blocks


def dirty(catalog: Catalog) -> dict[str, str]:
    """Commit some entries, change some in two layers, and return what is visible."""
    catalog.puts(a="1", b="1", c="1", d="1")
    catalog.commit()
    catalog.puts(a="2", e="1")
    catalog.delete("b")
    seal(catalog)
    catalog.puts(f="1")
    catalog.delete("e")
    catalog.delete("c")
    return {"a": "2", "d": "1", "f": "1"}


def seal(catalog: Catalog) -> BranchRecord:
    record = seal_branch(find_branch(catalog.repository, "main").pk, why=Why.COMMIT)
    assert record is not None
    return record


@pytest.mark.row("B81", "B82")
def test_a_compaction_replaces_sealed_tokens_and_changes_nothing_visible(compactor: Compactor) -> None:
    """One job, a snapshot, and a commit after it that writes no file."""
    catalog = compactor.catalog
    expected = dirty(catalog)
    changes = catalog.diff()
    assert compactor.sense().begun == ["acme/repo/main"]
    assert (catalog.visible(), catalog.diff()) == (expected, changes)
    result = compactor.finish()
    assert (catalog.visible(), catalog.diff()) == (expected, changes)
    record = catalog.record()
    assert (record.sealed, record.snapshot) == ((), result.metarange)
    done = compactor.last()
    assert (done.state, done.token_count, done.added, done.changed, done.removed) == ("published", 2, 1, 1, 2)
    assert done.cause == "sealed_tokens 1 of 1"
    assert not Build.objects.exists()
    check_invariants()
    catalog.puts(g="1")
    assert compactor.sense().begun == []
    catalog.delete("g")
    commit = catalog.commit()
    assert commit.metarange == result.metarange
    assert catalog.committed() == expected
    assert catalog.diff() == []


def test_a_fold_that_ends_where_the_commit_is_leaves_a_clean_branch(compactor: Compactor) -> None:
    catalog = compactor.catalog
    catalog.puts(a="1")
    catalog.commit()
    catalog.puts(a="2")
    seal(catalog)
    catalog.puts(a="1", b="1")
    catalog.delete("b")
    compactor.sense()
    assert compactor.finish().equals_head
    assert (catalog.record().snapshot, catalog.record().sealed, catalog.visible()) == (None, (), {"a": "1"})


def test_what_is_staged_meanwhile_stays_over_the_snapshot(compactor: Compactor) -> None:
    """Rows 4, 12 and 14 of the interleavings: writes and a commit's first phase run beside the build."""
    catalog = compactor.catalog
    expected = dirty(catalog)
    compactor.sense()
    spec = compactor.take()
    result = compactor.build(spec)
    catalog.puts(a="3", h="1")
    sealed = seal(catalog)
    catalog.delete("d")
    compactor.report(spec, result)
    expected = {key: each for key, each in expected.items() if key != "d"} | {"a": "3", "h": "1"}
    assert catalog.visible() == expected
    assert (catalog.record().sealed, catalog.record().snapshot) == (sealed.sealed[:1], result.metarange)
    catalog.commit()
    assert catalog.committed() == expected


def test_a_deleted_prefix_is_folded_to_absence(compactor: Compactor) -> None:
    """One interval tombstone, with rows over and under it."""
    catalog = compactor.catalog
    catalog.puts(xa="1", xb="1", y="1")
    catalog.commit()
    catalog.puts(xc="1")
    delete_prefix(catalog.repository, "main", b"x", context=CONTEXT)
    catalog.puts(xb="2")
    compactor.sense()
    assert compactor.finish().removed == 1
    assert (catalog.visible(), catalog.record().sealed) == ({"xb": "2", "y": "1"}, ())
    assert sorted(catalog.diff()) == [("changed", "xb"), ("removed", "xa")]


@pytest.mark.row("B80")
@pytest.mark.parametrize("other", ["commit", "reset", "delete", "anew", "compaction"])
def test_a_build_overtaken_by_a_commit_is_never_visible(compactor: Compactor, other: str) -> None:
    """Rows 13, 18, 28 and 29 of the interleavings: the job is done, the branch is as the others left it."""
    catalog = compactor.catalog
    dirty(catalog)
    compactor.sense()
    spec = compactor.take()
    result = compactor.build(spec)
    if other == "commit":
        catalog.commit()
    elif other == "reset":
        reset_branch(catalog.repository, "main", context=CONTEXT)
    elif other == "compaction":
        catalog.compact()
    else:
        catalog.branch("other")
        catalog.repository.default_branch = "other"
        catalog.repository.save()
        delete_branch(catalog.repository, "main", context=CONTEXT)
        if other == "anew":
            catalog.branch("main", "other")
    before = catalog.visible("other" if other == "delete" else "main")
    compactor.report(spec, result)
    done = compactor.last()
    assert done.state == CompactionState.LOST
    assert done.ended_because
    assert Job.objects.get(name=spec.job).state == JobState.DONE
    assert catalog.visible("other" if other == "delete" else "main") == before
    assert not Build.objects.exists()
    check_invariants()


def test_a_result_after_a_lost_lease_changes_nothing(compactor: Compactor) -> None:
    """A node dies, or is only slow: another has the job, and the first one's token is worth nothing."""
    catalog = compactor.catalog
    expected = dirty(catalog)
    compactor.sense()
    first = compactor.take()
    other = compactor.service.worker()
    compactor.service.clock.advance(16)
    assert compactor.polled(other) == []  # no command advances the time by more than a lease
    compactor.service.clock.advance(1)
    second = compactor.take(other)
    assert (second.job, second.layers) == (first.job, first.layers)
    result = compactor.build(first)
    compactor.report(first, result)
    assert compactor.last().state == CompactionState.OPEN
    assert catalog.record().snapshot is None
    assert compactor.build(second) == result
    compactor.report(second, result, other)
    assert catalog.record().snapshot == result.metarange
    compactor.report(first, result)
    assert catalog.visible() == expected
    assert Attempt.objects.filter(outcome=AttemptOutcome.COMPLETED).count() == 1


def test_a_job_that_can_not_be_published_any_more_is_ended(compactor: Compactor) -> None:
    """Wasted work is bounded: the node finds its lease gone at its next poll."""
    catalog = compactor.catalog
    dirty(catalog)
    compactor.sense()
    spec = compactor.take()
    catalog.commit()
    assert compactor.sense().lost == 1
    assert compactor.last().ended_because.startswith("lost head")
    assert Job.objects.get().state == JobState.DISSOLVED
    answer = compactor.node.poll(compactor.node.running(spec.job), capacity=0)
    assert answer.leases == ()
    assert compactor.watch().lost_in_a_row == 1
    check_invariants()


def test_a_result_that_contradicts_its_job_is_refused(compactor: Compactor) -> None:
    catalog = compactor.catalog
    expected = dirty(catalog)
    compactor.sense()
    spec = compactor.take()
    result = compactor.build(spec)
    for wrong in (
        replace(result, metarange="0" * 64),
        replace(result, metarange=spec.base),
        replace(result, added=result.added + 1),
        replace(result, written=()),
        replace(result, equals_head=True),
    ):
        compactor.report(spec, wrong)
        assert catalog.record().snapshot is None
        assert catalog.visible() == expected
        compactor.service.clock.advance(3600)
        spec = compactor.polled()[0] if Job.objects.get().state == JobState.WAITING else spec


def test_after_its_last_failure_the_branch_rests_and_is_tried_again(compactor: Compactor, rf: RequestFactory) -> None:
    """Counted, evicted and reported as in the other lanes; the reason stays in the history."""
    catalog = compactor.catalog
    expected = dirty(catalog)
    compactor.sense()
    compactor.fail_for_good()
    assert Job.objects.get().state == JobState.PARKED
    assert "parked" in str(explain_branch("acme/repo/main")[0])
    assert [compactor.sense().evicted for _ in range(2)] == [1, 0]
    done = compactor.last()
    assert (done.state, done.ended_because) == ("open", "ChecksumMismatch: a damaged range")
    assert [job.last_error_message for job in parked_jobs()] == ["a damaged range"]
    assert "damaged" in str(explain_branch("acme/repo/main")[0])
    [now] = statuses([catalog.repository]).values()
    assert (now.failed, now.running) == (1, 0)
    told = dict(dict(catalog_samples(1))["lithify_catalog_compactions"])
    assert told["acme", "repo", "failed"] == 1, "the alert LithifyBranchesSlow counts it"
    notices = [notice.text for notice in front_page(rf.get("/"), {})["notices"]]
    assert any(text.replace("\xa0", " ").startswith("1 job parked; keeps ") for text in notices), notices
    assert "parked" in [blocker["code"] for blocker in probe("/progressz").json()["blockers"]]
    assert "compactions fail" in state_badge(catalog.repository, now)
    assert "compaction failed" in sensor_words(watched_branches()[0])
    assert compactor.watch().lost_in_a_row == 1
    compactor.service.clock.advance(30 * 60)
    assert compactor.sense().begun == ["acme/repo/main"]
    done.refresh_from_db()
    assert (done.state, done.ended_because) == ("failed", "ChecksumMismatch: a damaged range")
    assert Job.objects.get(pk=done.job_id).state == JobState.DISSOLVED
    assert (list(parked_jobs()), compactor.watch().lost_in_a_row) == ([], 1)
    compactor.finish()
    assert catalog.visible() == expected
    assert compactor.watch().lost_in_a_row == 0


def test_a_parked_job_is_requeued_and_published(compactor: Compactor) -> None:
    expected = dirty(compactor.catalog)
    compactor.sense()
    compactor.fail_for_good()
    compactor.sense()
    requeue(JobFilter(everything=True), context=CONTEXT)
    compactor.sense()
    compactor.finish()
    assert (compactor.last().state, compactor.last().ended_because) == ("published", "")
    assert compactor.catalog.visible() == expected


def test_a_commit_ends_a_parked_compaction(compactor: Compactor) -> None:
    dirty(compactor.catalog)
    compactor.sense()
    compactor.fail_for_good()
    compactor.sense()
    compactor.catalog.commit()
    assert compactor.sense().lost == 1
    assert (compactor.last().state, list(parked_jobs())) == ("lost", [])


def test_a_branch_whose_compaction_failed_is_compacted_by_order_at_once(compactor: Compactor) -> None:
    expected = dirty(compactor.catalog)
    compactor.sense()
    compactor.fail_for_good()
    order_compaction(find_branch(compactor.catalog.repository, "main"), context=CONTEXT)
    assert compactor.sense().begun == ["acme/repo/main"]
    compactor.finish()
    assert compactor.catalog.visible() == expected


def test_an_operator_gives_a_parked_job_back(compactor: Compactor) -> None:
    dirty(compactor.catalog)
    compactor.sense()
    compactor.fail_for_good()
    return_job_blocks(JobFilter(names=(Job.objects.get().name,)), context=CONTEXT)
    assert compactor.last().state == CompactionState.ENDED
    assert Job.objects.get().state == JobState.DISSOLVED
    check_invariants()


def test_a_build_whose_file_was_being_deleted_is_made_again(compactor: Compactor) -> None:
    catalog = compactor.catalog
    dirty(catalog)
    compactor.sense()
    spec = compactor.take()
    result = compactor.build(spec)
    listed = {"repository_id": catalog.repository.pk, "since_ms": 0}
    CondemnedFile.objects.create(file_id=result.metarange, is_metarange=True, is_marked=True, **listed)
    kept = CondemnedFile.objects.create(file_id=result.written[0], **listed)
    compactor.report(spec, result)
    assert compactor.last().state == CompactionState.LOST
    assert catalog.record().snapshot is None
    assert CondemnedFile.objects.filter(pk=kept.pk).exists(), "what was refused changes nothing"
    CondemnedFile.objects.filter(file_id=result.metarange).update(deleted_ms=compactor.service.clock.now_ms)
    compactor.service.clock.advance(3600)
    compactor.sense()
    compactor.finish()
    assert catalog.record().snapshot == result.metarange
    assert not CondemnedFile.objects.filter(pk=kept.pk).exists()


def test_a_token_sealed_by_a_process_that_died_is_compacted_by_the_next_job(compactor: Compactor) -> None:
    """Row 36 of the interleavings: killed between the seal and the job."""
    catalog = compactor.catalog
    expected = dirty(catalog)
    with (
        patch("webadmin.lanes.catalog.services.compaction.compact_branch._make_job", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        compactor.sense()
    assert (compactor.last().state, compactor.last().job) == ("open", None)
    assert catalog.visible() == expected
    with pytest.raises(BranchBusy):
        begin_compaction(find_branch(catalog.repository, "main"), cause="again", context=CONTEXT)
    compactor.service.clock.advance(GATHER_MS_MAX / 1000 + 1)
    report = compactor.sense()
    assert (report.abandoned, report.begun) == (1, ["acme/repo/main"])
    assert "died" in Compaction.objects.order_by("pk")[0].ended_because
    compactor.finish()
    assert (catalog.visible(), catalog.record().sealed) == (expected, ())
    assert not Build.objects.exists()


def test_a_store_that_takes_no_run_ends_the_compaction_at_once(compactor: Compactor) -> None:
    """Nothing is published of what was not gathered wholly."""
    catalog = compactor.catalog
    expected = dirty(catalog)
    error = StorageError("put", "runs/1", "the store is away")
    with patch.object(type(catalog_store()), "open_writer", side_effect=error):
        assert "the store is away" in compactor.sense().failed["acme/repo/main"]
    assert compactor.last().state == CompactionState.FAILED
    assert not Job.objects.exists()
    assert not Build.objects.exists()
    assert catalog.visible() == expected


@pytest.mark.row("B83")
def test_an_unreadable_row_ends_the_compaction(compactor: Compactor) -> None:
    """An error in the middle of a sealed token is no end of it."""
    dirty(compactor.catalog)
    error = StorageError("read", "rows", "the database went away")
    with patch("webadmin.lanes.catalog.services.compaction.compact_branch.basis_layer", side_effect=error):
        assert compactor.sense().failed
    assert compactor.last().state == CompactionState.FAILED
    assert compactor.catalog.record().snapshot is None


def test_the_log_replays_and_the_job_is_explained(compactor: Compactor) -> None:
    dirty(compactor.catalog)
    compactor.sense()
    job = Job.objects.get()
    assert (job.lane, job.tenant) == ("catalog", "acme")
    command = Command.objects.get(index=job.created_command_index)
    [created] = command.change_set["created"]
    assert (created["job"], created["lane"], len(created["sources"])) == (job.name, "catalog", 2)
    assert job.name in str(explain_branch("acme/repo/main")[0])
    assert explain_name("acme/repo/main")
    assert explain_branch("acme/repo/none") == explain_branch("nonsense") == []
    compactor.finish()
    assert explain_branch("acme/repo/main")[0].state == "not compacted"


def test_empty_tokens_are_dropped_without_a_job(compactor: Compactor) -> None:
    catalog = compactor.catalog
    dirty(catalog)
    compactor.sense()
    compactor.finish()
    snapshot = catalog.record().snapshot
    done = begin_compaction(find_branch(catalog.repository, "main"), cause="by hand", context=CONTEXT)
    assert (done.state, done.ended_because) == (CompactionState.ENDED, "nothing is staged")
    assert catalog.record().snapshot == snapshot
    assert Job.objects.count() == 1
