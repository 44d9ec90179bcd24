"""``manage.py catalog status``, ``compact`` and ``gc``."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

from django.core.management import call_command

from engine.scheduling.model import JobState
from tests.webadmin.catalog.compactor import Compactor
from tests.webadmin.catalog.test_garbage import DAYS, age, upload
from webadmin.catalog.services.branches import find_branch
from webadmin.catalog.services.records import seal_branch
from webadmin.catalog.states import Why
from webadmin.schedule.models import Job


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
    assert told("status", "--tenant", "other")["branches"] == []
    assert told("compact", "main", *WHERE)["job"] == Job.objects.get().name
    compactor.finish()
    assert compactor.catalog.visible() == {"a": "1"}
    assert "nothing is staged" in run("compact", *WHERE)
    assert Job.objects.get().state == JobState.DONE


def test_what_nothing_reaches_is_named_and_then_deleted(compactor: Compactor) -> None:
    upload(compactor.catalog, "waste")
    age(compactor.catalog, compactor.service.clock.now_ms, 3 * DAYS)
    assert told("gc", *WHERE, "--dry-run")["names"][0].endswith("data/waste")
    assert "1 would be deleted" in run("gc", *WHERE, "--dry-run")
    assert told("gc", *WHERE)["objects_deleted"] == 1
    assert told("gc", *WHERE)["objects_deleted"] == 0
