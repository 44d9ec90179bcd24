"""``check_deployment`` reports each dependency by name, continues after a failure, and exits with 1 on errors."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from webadmin.embedded.deployment.checks import run_checks
from webadmin.embedded.deployment.findings import Finding, Level

pytestmark = pytest.mark.django_db


def _report(*options: str) -> tuple[str, int]:
    """Return what the command printed and its exit code."""
    out = io.StringIO()
    try:
        call_command("check_deployment", *options, stdout=out)
    except SystemExit as end:
        return out.getvalue(), int(str(end.code))
    return out.getvalue(), 0


@pytest.fixture(autouse=True)
def store(settings: Any, tmp_path: Path) -> Path:
    """Use an empty folder as object store."""
    settings.OBJECT_STORE_URL = f"file://{tmp_path}/objects"
    return tmp_path / "objects"


def test_a_working_deployment_has_no_errors() -> None:
    text, code = _report()
    assert code == 0
    assert f"ok      database: {connection.display_name} answers, all migrations applied." in text
    assert "ok      object_store: " in text
    assert text.splitlines()[-1].endswith(" 0 error")


def test_json_has_counts_and_all_findings() -> None:
    text, code = _report("--json")
    report = json.loads(text)
    assert code == 0
    assert report["counts"]["error"] == 0
    assert {row["name"] for row in report["findings"]} >= {"database", "object_store"}
    assert all(set(row) == {"name", "level", "found", "advice"} for row in report["findings"])


def test_a_missing_migration_is_an_error_and_the_next_check_runs() -> None:
    MigrationRecorder.Migration.objects.filter(app="catalog").order_by("-id")[0].delete()
    text, code = _report()
    assert code == 1
    assert "error   database: migrations not applied: 1. To do: run manage.py migrate." in text
    assert "ok      object_store: " in text


def test_a_store_that_cannot_be_written_is_an_error(settings: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    settings.OBJECT_STORE_URL = f"file://{tmp_path}/file"
    text, code = _report()
    assert code == 1
    assert f"error   object_store: file://{tmp_path}/file" in text


def test_a_check_that_raises_is_reported_under_its_name() -> None:
    def check_broker() -> Iterator[Finding]:
        raise ConnectionRefusedError("no server at port 1")
        yield

    def check_next() -> Iterator[Finding]:
        yield Finding(name="next", level=Level.OK, found="works")

    broken, following = run_checks([check_broker, check_next])
    assert (broken.name, broken.level) == ("broker", Level.ERROR)
    assert "no server at port 1" in broken.found
    assert following.found == "works"
