"""``manage.py reprocess_failed_jobs``: filters, dry run, table and JSON, exit codes."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from engine.protocol.messages import FailureReason
from engine.schedule.model import JobState
from tests.webadmin.service import Service
from webadmin.base.access.models import AuditEntry
from webadmin.base.actions.action import ActionContext
from webadmin.schedule.models import Job
from webadmin.schedule.register import JobFilter
from webadmin.schedule.services.cancel_jobs import cancel

OTHER = FailureReason(error_class="Truncated", message="ends early")


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("reprocess_failed_jobs", *arguments, stdout=out)
    return out.getvalue()


def answer(*arguments: str) -> dict[str, Any]:
    return json.loads(run(*arguments, "--json"))


def test_all_evicted_jobs_are_requeued(service: Service, evicted) -> None:
    names = {evicted(shard=shard).name for shard in (1, 2)}
    told = answer("--all", "--why", "new disk")
    assert set(told["changed"]) == names
    assert told["error_classes"] == {"ChecksumMismatch": 2}
    assert not Job.objects.filter(state=JobState.PARKED).exists()
    audit = AuditEntry.objects.get(action="requeue")
    assert audit.detail["why"] == "new disk"
    assert audit.actor.startswith("command:")


def test_filters_narrow_what_is_requeued(service: Service, evicted) -> None:
    evicted(shard=1)
    job = evicted(shard=2, reason=OTHER)
    assert answer("--error-class", "Truncated", "--level", "0", "--tenant", "")["changed"] == [job.name]


def test_a_dry_run_shows_the_table_and_changes_nothing(service: Service, evicted) -> None:
    job = evicted()
    before = service.dump()
    text = run("--all", "--dry-run")
    assert service.dump() == before
    assert job.name in text
    assert "1 would be requeued (1 ChecksumMismatch), 0 left" in text


def test_deferred_jobs_are_selected_by_name_or_option(service: Service, context: ActionContext) -> None:
    service.add_segments(20)
    service.worker().take()
    cancel(JobFilter(everything=True), context=context)
    assert answer("--all")["changed"] == []
    assert len(answer("--all", "--kind", "deferred")["changed"]) == 1


def test_an_unknown_job_is_an_error_with_exit_code_1(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run("nothing")
    assert stopped.value.code == 1


def test_without_a_filter_nothing_is_done(service: Service, evicted) -> None:
    evicted()
    with pytest.raises(CommandError, match="say that all are meant"):
        run()
    assert Job.objects.get().state == JobState.PARKED


def test_the_option_newer_build_only_pins_jobs(service: Service, evicted) -> None:
    evicted()
    run("--all", "--newer-build-only")
    assert service.worker().take() == []
