"""A test that is skipped has failed where CI runs, unless its reason is listed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT

PROGRAM = """
import pytest

def test_runs():
    pass

@pytest.mark.skipif(True, reason="no promtool")
def test_by_its_mark():
    pass

def test_by_itself():
    pytest.importorskip("nothing_of_this_name")

def test_rightly():
    pytest.skip("a commit of SQLite's is on disk")

@pytest.mark.xfail
def test_is_known_to_fail():
    raise AssertionError
"""


@pytest.mark.parametrize(
    ("ci", "told"),
    [
        ("true", "1 failed, 1 passed, 1 skipped, 1 xfailed, 2 errors"),
        ("", "1 passed, 4 skipped, 1 xfailed"),
    ],
)
def test_a_skipped_test_has_failed_in_ci(tmp_path: Path, ci: str, told: str) -> None:
    (tmp_path / "test_some.py").write_text(PROGRAM)
    (tmp_path / "test_module.py").write_text("import pytest\npytest.skip('no chromium', allow_module_level=True)\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.skips", "-p", "no:cacheprovider", "-p", "no:django"]
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [*command, "--continue-on-collection-errors", str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert told in ended.stdout, ended.stdout + ended.stderr
    if ci:
        for reason in ("no promtool", "nothing_of_this_name", "no chromium"):
            assert reason in ended.stdout
