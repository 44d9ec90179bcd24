"""The stack in the background of a command: interrupted at any moment of its start, no process is left behind."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.webadmin.embedded.test_supervisor import is_alive
from webadmin.embedded.errors import ProgramFailed
from webadmin.embedded.program import Program
from webadmin.embedded.running_stack import running_stack

WAIT = (sys.executable, "-c", "import signal; print('there', flush=True); signal.pause()")


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """What Ctrl-C does in a terminal: a shell that starts us in the background has us ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def wait_for_ever() -> None:
    """Only a signal ends it, also one that comes between two looks."""
    while True:
        threading.Event().wait(0.1)


def test_the_programs_run_while_the_block_is_not_left(tmp_path: Path) -> None:
    programs = [Program(name=name, command=WAIT, ready_line="there") for name in ("first", "second")]
    with running_stack(programs, tmp_path / "log") as supervisor:
        pids = supervisor.pids()
        assert set(pids) == {"first", "second"}
        assert all(is_alive(pid) for pid in pids.values())
    assert not any(is_alive(pid) for pid in pids.values())


def test_only_its_owner_may_read_the_log(tmp_path: Path) -> None:
    for name, is_old in (("new", False), ("old", True)):
        if is_old:
            (tmp_path / name).touch()
            (tmp_path / name).chmod(0o644)
        with running_stack([], tmp_path / name):
            pass
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_failed_start_raises_program_failed(tmp_path: Path) -> None:
    programs = [Program(name="short", command=(sys.executable, "-c", ""), ready_line="never")]
    with pytest.raises(ProgramFailed, match="short"), running_stack(programs, tmp_path / "log"):
        pass


def test_ctrl_c_between_the_start_of_a_process_and_the_note_of_it_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ctrl_c: None
) -> None:
    begun = []
    start = subprocess.Popen

    def popen(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        process = start(*args, **kwargs)
        begun.append(process.pid)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return process

    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(KeyboardInterrupt), running_stack([Program(name="one", command=WAIT)], tmp_path / "log"):
        wait_for_ever()
    assert [is_alive(pid) for pid in begun] == [False]


def test_ctrl_c_in_the_start_of_the_thread_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ctrl_c: None
) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if thread.name == "supervise-stack":
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    seen: list[int] = []
    with (
        pytest.raises(KeyboardInterrupt),
        running_stack([Program(name="one", command=WAIT, ready_line="there")], tmp_path / "log") as supervisor,
    ):
        seen += supervisor.pids().values()
    assert seen == []
    assert "supervise-stack" not in {thread.name for thread in threading.enumerate()}


def test_programs_can_be_stopped_by_the_signals_that_were_held(tmp_path: Path) -> None:
    with running_stack([Program(name="one", command=WAIT, ready_line="there")], tmp_path / "log") as supervisor:
        [pid] = supervisor.pids().values()
        status = Path(f"/proc/{pid}/status").read_text()
    blocked = next(line.split()[1] for line in status.splitlines() if line.startswith("SigBlk"))
    assert int(blocked, 16) == 0
