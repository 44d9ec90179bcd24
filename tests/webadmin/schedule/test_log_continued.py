"""No index of a command is used twice when the database server, or the database in it, is not the one it was."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection, transaction

from engine.schedule.limits import Scope, ScopeKind
from engine.schedule.pauses import PauseMode
from engine.storage import open_store
from tests.migrated import ROOT, put_sqlite
from tests.webadmin.service import Service, check_invariants
from webadmin.base.actions.action import ActionContext
from webadmin.base.database.columns import server_column
from webadmin.schedule.command_log import INDEX_MARGIN, read_time, take_head
from webadmin.schedule.models import Attempt, Command, Job, LogHead
from webadmin.schedule.services.pause_schedule import pause


@pytest.fixture
def other_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the run of the server be one that has a name on SQLite too, and another than the last command's."""
    monkeypatch.setattr("webadmin.schedule.command_log.server_column", lambda: "'run 2'")
    monkeypatch.setattr("webadmin.schedule.command_log._is_server_known", lambda: True)
    LogHead.objects.update(server="run 1")


def last_index() -> int:
    return Command.objects.order_by("-index").values_list("index", flat=True)[0]


def test_the_first_token_of_another_run_of_the_server_is_far_above_the_last(
    service: Service, other_server: None
) -> None:
    service.add_segments(20)
    before = last_index()
    [spec] = service.worker().take()
    assert spec.fence > max(before + INDEX_MARGIN, service.clock.now_ms - 1)
    assert Attempt.objects.get().token == Job.objects.get().token == spec.fence == last_index()
    assert LogHead.objects.get().server == "run 2"
    check_invariants()


def test_the_log_is_continued_once(service: Service, other_server: None) -> None:
    service.add_segments(40)
    first, second = (service.worker().take()[0].fence for _ in range(2))
    assert second - first < 10
    assert sum("behind" in entry.change_set for entry in Command.objects.all()) == 1


def test_orders_of_operators_continue_it_too(service: Service, other_server: None) -> None:
    service.add_segments(1)
    before = last_index()
    outcome = pause(scope=Scope(ScopeKind.GLOBAL), mode=PauseMode.PAUSE, context=ActionContext(actor="ann", why="test"))
    assert outcome is not None
    assert last_index() > before + INDEX_MARGIN


def test_leases_outlive_it_when_the_service_was_away(service: Service, other_server: None) -> None:
    service.add_segments(20)
    LogHead.objects.update(server="run 2")
    worker = service.worker()
    [spec] = worker.take()
    LogHead.objects.update(server="run 1")
    service.clock.advance(3600)
    answer = worker.poll(worker.running(spec.job), capacity=0)
    assert [lease.job for lease in answer.leases] == [spec.job]


def test_an_unknown_run_is_recorded_and_changes_nothing(service: Service, other_server: None) -> None:
    LogHead.objects.update(server="")
    service.add_segments(20)
    before = last_index()
    [spec] = service.worker().take()
    assert spec.fence == before + 1
    assert LogHead.objects.get().server == "run 2"


def test_the_database_names_its_run(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {server_column()}")
        [name] = cursor.fetchone()
    assert name == "sqlite" if connection.vendor == "sqlite" else name.count("/") == 3
    with transaction.atomic():
        take_head()
    assert LogHead.objects.get().server in ("", name)
    assert read_time().now_ms > 0


def test_a_web_process_that_starts_on_an_old_copy_of_sqlite_continues_the_log(tmp_path: Path) -> None:
    database = tmp_path / "lithify.sqlite3"
    put_sqlite(database)
    environment = {
        **os.environ,
        "DATABASE_URL": f"sqlite:///{database}",
        "LITHIFY_HOME": str(tmp_path),
        "OBJECT_STORE_URL": f"file://{tmp_path}/objects",
        "DJANGO_SETTINGS_MODULE": "webadmin.settings",
    }

    def run(code: str) -> None:
        ended = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr

    run(
        "import django, shutil; django.setup()\n"
        "from django.db import connection\n"
        "from webadmin.schedule.services.guard_deletions import allow_deletions\n"
        "allow_deletions(mark=True)\n"
        "connection.close()\n"
        f"shutil.copyfile({str(database)!r}, {str(tmp_path / 'copy')!r})\n"
        "allow_deletions(mark=True)\n"
    )
    [info] = open_store(environment["OBJECT_STORE_URL"]).list("log/")
    shutil.copyfile(tmp_path / "copy", database)
    run("import webadmin.wsgi")
    with sqlite3.connect(database) as rows:
        indexes = [index for (index,) in rows.execute('SELECT "index" FROM schedule_command ORDER BY 1')]
        ahead = rows.execute("SELECT epoch FROM schedule_aheadposition").fetchall()
    rows.close()
    assert indexes[0] == 1
    assert indexes[1] > INDEX_MARGIN
    assert [f"log/{epoch}/position" for (epoch,) in ahead] == [info.key]
