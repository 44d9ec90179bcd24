"""Progress names the branches of repositories that wait to be compacted; explain knows repositories."""

from __future__ import annotations

import pytest

from tests.webadmin.lanes.catalog.compactor import Compactor
from webadmin.lanes.catalog import lane_report
from webadmin.lanes.catalog.branch_loads import watched_branches
from webadmin.lanes.catalog.lane_models import BranchWatch
from webadmin.lanes.catalog.services.branches import find_branch
from webadmin.lanes.catalog.services.records import seal_branch
from webadmin.lanes.catalog.states import Why
from webadmin.progress.report import progress_report
from webadmin.schedule.explain import explain_name


def test_a_branch_worth_compacting_is_in_the_report(compactor: Compactor) -> None:
    assert progress_report().lanes == []
    compactor.catalog.puts(a="1")
    seal_branch(find_branch(compactor.catalog.repository, "main").pk, why=Why.COMMIT)
    compactor.set(sealed_tokens=9)
    compactor.sense()
    BranchWatch.objects.update(is_wanted=True)  # as it stays while others are compacted first
    [row] = progress_report().lanes
    assert (row.lane, row.waiting.tenant, row.waiting.name) == ("catalog", "acme", "acme/repo")
    assert (row.waiting.count, row.waiting.unit) == (1, "branch")


def test_a_tenant_is_explained_with_its_branches_and_without_those_of_others(
    compactor: Compactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    compactor.catalog.puts(a="1")
    branch = find_branch(compactor.catalog.repository, "main")
    seal_branch(branch.pk, why=Why.COMMIT)
    compactor.set(sealed_tokens=9)
    compactor.sense()
    BranchWatch.objects.update(is_wanted=True)
    asked = []
    monkeypatch.setattr(lane_report, "watched_branches", lambda ids: asked.append(ids) or watched_branches(ids))
    [told] = explain_name("acme")
    assert "1 branch of acme/repo (catalog)" in told.sentence
    assert lane_report.branches_waiting("umbrella") == []
    assert asked == [[branch.pk], []]


def test_a_repository_is_explained(compactor: Compactor) -> None:
    compactor.set(sealed_tokens=9)
    compactor.catalog.puts(a="1")
    seal_branch(find_branch(compactor.catalog.repository, "main").pk, why=Why.COMMIT)
    assert "Repository acme/repo is waiting: 1 sealed token" in explain_name("acme/repo")[0].sentence
    compactor.set(sealed_tokens=1)
    compactor.sense()
    assert "Repository acme/repo is waiting: 1 job waiting" in explain_name("acme/repo")[0].sentence
