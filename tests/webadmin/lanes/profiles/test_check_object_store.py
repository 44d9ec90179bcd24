"""``manage.py check_object_store``."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from engine.storage.local import LocalStore


def test_a_folder_does_everything_and_nothing_stays_behind(tmp_path: Path) -> None:
    out = StringIO()
    call_command("check_object_store", bucket=str(tmp_path / "store"), stdout=out)
    lines = out.getvalue().splitlines()
    assert len(lines) > 5
    assert all(line.startswith("yes") for line in lines[:-1])
    assert lines[-1] == "conditional create: enforced (nothing depends on it)"
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]


def test_a_store_that_forgets_to_delete_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalStore, "delete", lambda self, key: None)
    out = StringIO()
    with pytest.raises(CommandError, match="does not do what Lithify needs"):
        call_command("check_object_store", bucket=str(tmp_path / "store"), stdout=out)
    assert "no " in out.getvalue()


def test_a_url_that_means_nothing_is_refused() -> None:
    with pytest.raises(CommandError, match="gopher"):
        call_command("check_object_store", bucket="gopher://hole")
