"""Advice and the dry run of a plan, as operators call them."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from engine.schedule.advice import PROCESS_BYTES
from engine.schedule.limits import Scope, ScopeKind
from tests.webadmin.service import Service
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.progress.services import count_log
from webadmin.schedule.models import Command, Job, Limits
from webadmin.schedule.services.pause_schedule import pause


def said(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def test_a_dry_run_names_what_the_next_poll_then_does(service: Service) -> None:
    service.add_segments(45)
    before = service.dump()
    shown = json.loads(said("plan", "--dry-run", "--capacity", "8", "--json"))
    assert service.dump() == before, "a dry run changes nothing"
    planned = [entry["job"] for entry in shown["created"]]
    assert len(planned) == 2
    assert [spec.job for spec in service.worker().take(8)] == planned
    assert "plans" not in said("plan", "--dry-run")


def test_a_dry_run_prints_a_table_or_that_nothing_would_change(service: Service) -> None:
    assert "A poll would change nothing now" in said("plan", "--dry-run")
    service.add_segments(20)
    table = said("plan", "--dry-run")
    assert "plans" in table
    assert "segments" in table
    pause(scope=Scope(ScopeKind.GLOBAL), context=ActionContext(actor="op"))
    assert "A poll would change nothing now" in said("plan", "--dry-run")


def test_a_plan_is_made_by_polls_only(service: Service) -> None:
    service.add_segments(20)
    commands = Command.objects.count()
    with pytest.raises(CommandError, match="say --dry-run"):
        call_command("plan")
    with pytest.raises(CommandError, match="0 to"):
        call_command("plan", "--dry-run", "--capacity", "-1")
    assert (Command.objects.count(), Job.objects.count()) == (commands, 0)


def test_advice_follows_what_was_measured(service: Service) -> None:
    service.add_segments(40)
    worker = service.worker()
    [spec] = worker.take(1)
    service.clock.advance(30)
    worker.poll(worker.success(spec.job), capacity=1)
    count_log()
    service.clock.advance(60)
    advice = json.loads(said("advise", "--json", "--slots", "4"))
    assert advice["is_measured"] is True
    assert advice["steady_slots"] > 0
    assert advice["backlog_slots"] > 0
    assert advice["memory_per_node"] == PROCESS_BYTES + 4 * (512 << 20)
    Limits.objects.update(cleanup_delay_seconds=30 * 60, task_memory_bytes=1 << 30)
    LevelPolicy.objects.filter(level=2).update(bytes_max=1 << 30)
    other = json.loads(said("advise", "--json", "--slots", "4"))
    assert other["memory_per_node"] == PROCESS_BYTES + 4 * (1 << 30)
    assert other["scratch_per_node"] == 10 << 30, "two and a half times the largest job that a policy allows, in a slot"
    assert other["replaced_bytes"] == pytest.approx(2 * advice["replaced_bytes"], abs=2)
    text = said("advise")
    assert "job slots:" in text
    assert "of scratch disk" in text


def test_advice_without_a_load_prints_its_assumptions(service: Service) -> None:
    text = said("advise")
    assert text.startswith("1 node of 2 job slots")
    assert "the cost per byte is assumed" in text


@pytest.mark.parametrize("arguments", [["--window", "1"], ["--clear", "0"], ["--slots", "0"], ["--slots", "9999"]])
def test_advice_out_of_bounds_is_refused(service: Service, arguments: list[str]) -> None:
    with pytest.raises(CommandError, match=arguments[0]):
        call_command("advise", *arguments)
