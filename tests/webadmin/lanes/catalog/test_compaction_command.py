"""``manage.py catalog status``, ``compact``, ``gc`` and ``restore``."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from engine.schedule.model import JobState
from tests.webadmin.lanes.catalog.compactor import Compactor
from tests.webadmin.lanes.catalog.short import CONTEXT, new_catalog
from tests.webadmin.lanes.catalog.test_garbage import DAYS, age, upload
from webadmin.lanes.catalog.services.branches import find_branch
from webadmin.lanes.catalog.services.records import seal_branch
from webadmin.lanes.catalog.services.repositories import delete_repository, find_repository
from webadmin.lanes.catalog.states import Why
from webadmin.schedule.models import Job, Limits


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("catalog", *arguments, stdout=out)
    return out.getvalue()


def told(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


WHERE = ("--tenant", "acme", "--repository", "repo")


def test_a_branch_is_looked_at_and_compacted_by_command(compactor: Compactor) -> None:
    compactor.catalog.puts(a="1")
    seal_branch(find_branch(compactor.catalog.repository, "main").pk, why=Why.COMMIT)
    compactor.set(sealed_tokens=2)
    [row] = told("status", "--tenant", "acme")["branches"]
    assert (row["branch"], row["sealed_tokens"], row["fires"]) == ("main", 1, False)
    assert row["says"] == "no signal has reached its threshold"
    assert "acme/repo" in run("status")
    assert told("compact", "main", *WHERE)["job"] == Job.objects.get().name
    compactor.finish()
    assert compactor.catalog.visible() == {"a": "1"}
    assert "nothing is staged" in run("compact", *WHERE)
    assert Job.objects.get().state == JobState.DONE


def test_what_nothing_reaches_is_named_and_then_deleted(compactor: Compactor) -> None:
    upload(compactor.catalog, "waste")
    age(compactor.catalog, compactor.service.clock.now_ms, 3 * DAYS)
    assert told("gc", *WHERE, "--dry-run")["objects_condemned"] == 1
    assert "1 condemned, 0 deleted" in run("gc", *WHERE)
    compactor.service.clock.advance(3601)
    assert told("gc", *WHERE, "--dry-run")["names"][0].endswith("data/waste")
    assert "1 would be deleted" in run("gc", *WHERE, "--dry-run")
    assert told("gc", *WHERE)["objects_deleted"] == 1
    assert told("gc", *WHERE)["objects_deleted"] == 0


@pytest.mark.parametrize("action", [("compact",), ("gc", "--dry-run"), ("gc",)])
def test_a_missing_repository_is_an_error_that_names_other_tenants(
    compactor: Compactor, action: tuple[str, ...]
) -> None:
    with pytest.raises(CommandError, match="anonymous has no repository 'repo', but acme has: name it with --tenant"):
        run(*action, "--repository", "repo")
    with pytest.raises(CommandError, match=r"^anonymous has no repository 'lake'$") as ended:
        run(*action, "--repository", "lake")
    assert ended.value.returncode == 1


def test_a_branch_that_is_not_there_is_named(compactor: Compactor) -> None:
    with pytest.raises(CommandError, match=r"^repo has no branch 'dev'$"):
        run("compact", "dev", *WHERE)


def test_a_second_compaction_request_is_refused_while_one_runs(compactor: Compactor) -> None:
    compactor.catalog.puts(a="1")
    run("compact", *WHERE)
    with pytest.raises(CommandError, match="a compaction of main is under way"):
        run("compact", *WHERE)


def test_an_order_for_which_there_is_no_room_fails(compactor: Compactor) -> None:
    compactor.catalog.puts(a="1")
    compactor.service.add_segments(20)
    compactor.service.worker().take()
    Limits.objects.update(queue_max=1)
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("catalog", "compact", *WHERE, stdout=out)
    assert (ended.value.code, out.getvalue()) == (1, "main: ended: the schedule is full\n")


def test_a_status_without_rows_is_printed_and_an_unknown_tenant_is_an_error(compactor: Compactor) -> None:
    assert run("status") == "nothing is staged on any branch\n1 repository, no condemned files\n"
    with pytest.raises(CommandError, match=r"^nobody has no repository$"):
        run("status", "--tenant", "nobody")
    assert told("status")["branches"] == []


def test_a_deleted_repository_is_listed_and_restored(compactor: Compactor) -> None:
    first = compactor.catalog.repository
    delete_repository(first, context=CONTEXT)
    second = new_catalog().repository
    delete_repository(second, context=CONTEXT)
    assert {row["id"] for row in told("status", "--tenant", "acme")["deleted_repositories"]} == {first.pk, second.pk}
    assert f"acme/repo (id {first.pk}): Deleted" in run("status")
    with pytest.raises(CommandError, match=f"choose by id one of .*{first.pk}"):
        run("restore", *WHERE)
    wanted = ("restore", *WHERE, "--id", str(first.pk))
    assert "can be restored" in run(*wanted, "--dry-run")
    assert told(*wanted) == {"repository": "acme/repo", "id": first.pk, "restored": True}
    assert find_repository("acme", "repo") == first
    with pytest.raises(CommandError, match="no deleted repository 'repo' that can be restored"):
        run(*wanted)
