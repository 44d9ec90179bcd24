"""``manage.py up`` before it starts anything: what it refuses, and how it says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from webadmin.embedded.stack_home import locked_home

ROOT = Path(__file__).parents[3]


def up(home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "up"],
        cwd=ROOT,
        env={**os.environ, "LITHIFY_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_home_in_use_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with locked_home(tmp_path):
        answer = up(tmp_path)
    assert answer.returncode == 1
    assert f"another stack (process {os.getpid()}) runs in {tmp_path}" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_database_that_does_not_answer_is_named_as_the_trouble(tmp_path: Path) -> None:
    answer = up(tmp_path, DATABASE_URL=f"postgresql://nobody@/nothing?host={tmp_path}")
    assert answer.returncode == 1
    assert "the database does not answer" in answer.stderr
    assert "check DATABASE_URL" in answer.stderr
    assert "Traceback" not in answer.stderr
