"""``manage.py up`` before it starts anything: what it refuses, and how it says so."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from webadmin.embedded.management.commands.up import Command
from webadmin.embedded.process_log import ProcessLog
from webadmin.embedded.stack import StackSettings
from webadmin.embedded.stack_home import Login, locked_home, prepare_login

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


def welcome(home: Path, login: Login) -> str:
    stream = io.StringIO()
    stack = StackSettings(home=home, web_port=8000, object_store_url="file:///objects", worker_credential="lw_x")
    Command()._print_addresses(ProcessLog(stream, [], coloured=False), stack, login)
    return stream.getvalue()


def test_the_welcome_says_where_the_password_is_and_not_what_it_is(db: None, tmp_path: Path) -> None:
    """What it prints often ends in a log that others read."""
    login = prepare_login(tmp_path)
    assert len(login.password) > 10
    said = welcome(tmp_path, login)
    assert f"login: admin   password: in {login.password_file}" in said
    assert login.password not in said
    assert login.password_file.read_text() == login.password
    assert "lw_x" not in said
    assert "password: the one you chose" in welcome(
        tmp_path, Login(name="admin", password="", password_file=login.password_file)
    )
