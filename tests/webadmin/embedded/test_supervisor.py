"""The supervisor starts in order, restarts what dies and leaves nothing behind; tried with small real programs."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from webadmin.embedded.errors import ProgramFailed
from webadmin.embedded.process_log import ProcessLog
from webadmin.embedded.program import Program
from webadmin.embedded.supervisor import RESTART_LAST_SECONDS, Supervisor, restart_delay

DEADLINE_SECONDS = 20

RUNS_UNTIL_STOPPED = "import signal; print('here', flush=True); signal.pause()"
SAYS_WHEN_IT_STOPS = """
import pathlib, signal, sys
def stop(*_):
    with open(sys.argv[1], "a") as order:
        order.write(sys.argv[2] + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("here", flush=True)
while True:
    signal.pause()
"""
IGNORES_STOPPING = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); signal.pause()"
)
HAS_A_CHILD = """
import signal, subprocess, sys
deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
child = subprocess.Popen([sys.executable, "-c", deaf])
print("child", child.pid, flush=True)
signal.pause()
"""


def python(name: str, code: str, *arguments: str, **settings: object) -> Program:
    return Program(name=name, command=(sys.executable, "-c", code, *arguments), **settings)  # type: ignore[arg-type]


def supervise(*programs: Program, delay: Callable[[int], float] = restart_delay) -> tuple[Supervisor, io.StringIO]:
    output = io.StringIO()
    return Supervisor(programs, ProcessLog(output, [p.name for p in programs]), delay=delay), output


@contextmanager
def watched(supervisor: Supervisor) -> Iterator[None]:
    """The started supervisor watches in a thread; at the end it is stopped."""
    thread = threading.Thread(target=supervisor.watch)
    thread.start()
    try:
        yield
    finally:
        supervisor.request_stop()
        thread.join(DEADLINE_SECONDS)
        supervisor.stop()
    assert not thread.is_alive()


def eventually(claim: Callable[[], bool]) -> None:
    """Wait until ``claim`` holds; the deadline is only there so that a failure ends."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    pause = threading.Event()
    while not claim():
        assert time.monotonic() < deadline, "it did not happen in time"
        pause.wait(0.01)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_program_starts_only_when_the_one_before_is_ready(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    first = python(
        "first",
        f"import signal, time; time.sleep(0.2); open({str(mark)!r}, 'w').close(); signal.pause()",
        probe=mark.exists,
    )
    second = python(
        "second", f"import os, signal; print('saw', os.path.exists({str(mark)!r}), flush=True); signal.pause()"
    )
    supervisor, output = supervise(first, python("second", second.command[2], ready_line="^saw"))
    try:
        assert supervisor.start()
        assert "second  | saw True" in output.getvalue()
    finally:
        supervisor.stop()


def test_a_program_that_does_not_wait_starts_together_with_the_one_before(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    met = "import pathlib, signal, sys; pathlib.Path(sys.argv[1]).touch(); signal.pause()"
    # Each is ready only when the other one has started: one after the other they never would be.
    programs = (
        python("first", met, str(first), probe=second.exists, ready_seconds=DEADLINE_SECONDS),
        python("second", met, str(second), probe=first.exists, ready_seconds=DEADLINE_SECONDS, waits=False),
        python("third", "import os, sys; sys.exit(not all(map(os.path.exists, sys.argv[1:])))", str(first), str(second),
               runs_once=True),
    )  # fmt: skip
    supervisor, _ = supervise(*programs)
    try:
        assert supervisor.start()
    finally:
        supervisor.stop()


def test_a_program_that_runs_once_is_finished_before_the_next_one_starts(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    once = python("once", f"import time; time.sleep(0.2); open({str(mark)!r}, 'w').close()", runs_once=True)
    after = python("after", f"import os; print('saw', os.path.exists({str(mark)!r}))", runs_once=True)
    supervisor, output = supervise(once, after)
    assert supervisor.start()
    supervisor.stop()
    assert "after   | saw True" in output.getvalue()


def test_a_program_that_ends_before_it_is_ready_fails_the_start_with_its_last_words() -> None:
    good = python("good", RUNS_UNTIL_STOPPED, ready_line="here")
    bad = python("bad", "import sys; print('the port is taken'); sys.exit(7)", ready_line="never")
    supervisor, _ = supervise(good, bad)
    with pytest.raises(ProgramFailed, match=r"bad ended with exit code 7(?s:.*)the port is taken"):
        supervisor.start()
    assert supervisor.pids() == {}


def test_a_program_that_is_never_ready_fails_the_start_in_its_time() -> None:
    supervisor, _ = supervise(python("slow", RUNS_UNTIL_STOPPED, probe=lambda: False, ready_seconds=0.3))
    with pytest.raises(ProgramFailed, match=r"slow was not ready in 0.3 s"):
        supervisor.start()
    assert supervisor.pids() == {}


def test_a_program_that_does_not_exist_is_named() -> None:
    supervisor, _ = supervise(Program(name="ghost", command=("no-such-program-anywhere",)))
    with pytest.raises(ProgramFailed, match="ghost could not be started"):
        supervisor.start()


def test_a_program_that_dies_is_restarted_and_logged() -> None:
    supervisor, output = supervise(python("tough", RUNS_UNTIL_STOPPED, ready_line="here"), delay=lambda deaths: 0.01)
    assert supervisor.start()
    first = supervisor.pids()["tough"]
    with watched(supervisor):
        os.kill(first, signal.SIGKILL)
        eventually(lambda: supervisor.pids().get("tough", first) != first)
        assert "tough ended with exit code -9: starting it again" in output.getvalue()
        second = supervisor.pids()["tough"]
    assert not is_alive(second)


def test_deaths_in_a_row_wait_longer_and_longer() -> None:
    delays: list[int] = []

    def note(deaths: int) -> float:
        delays.append(deaths)
        return 0.01

    supervisor, _ = supervise(python("weak", "import time; time.sleep(0.05)"), delay=note)
    assert supervisor.start()
    with watched(supervisor):
        eventually(lambda: len(delays) >= 3)
    assert delays[:3] == [1, 2, 3]


def test_the_restart_delay_doubles_up_to_a_limit() -> None:
    assert [restart_delay(deaths) for deaths in (1, 2, 3)] == [0.5, 1.0, 2.0]
    assert restart_delay(1000) == RESTART_LAST_SECONDS


def test_what_was_started_last_is_stopped_first(tmp_path: Path) -> None:
    order = tmp_path / "order"
    names = ("redis", "web", "compactor")
    supervisor, _ = supervise(*(python(n, SAYS_WHEN_IT_STOPS, str(order), n, ready_line="here") for n in names))
    assert supervisor.start()
    supervisor.stop()
    assert order.read_text().split() == list(reversed(names))


def test_a_program_that_does_not_stop_by_itself_is_killed() -> None:
    supervisor, output = supervise(python("deaf", IGNORES_STOPPING, ready_line="here", stop_seconds=0.2))
    assert supervisor.start()
    pid = supervisor.pids()["deaf"]
    supervisor.stop()
    assert not is_alive(pid)
    assert "deaf did not stop by itself: killed" in output.getvalue()


def test_a_second_stop_request_kills_at_once() -> None:
    supervisor, _ = supervise(python("deaf", IGNORES_STOPPING, ready_line="here", stop_seconds=3600))
    assert supervisor.start()
    supervisor.request_stop()
    supervisor.request_stop()
    supervisor.stop()
    assert supervisor.pids() == {}


def test_what_a_program_started_ends_with_it() -> None:
    supervisor, output = supervise(python("parent", HAS_A_CHILD, ready_line="child"))
    assert supervisor.start()
    child = int(output.getvalue().split("child ")[1].split()[0])
    assert is_alive(child)
    supervisor.stop()
    eventually(lambda: not is_alive(child))


def test_a_stop_request_during_the_start_ends_the_start() -> None:
    started = threading.Event()
    supervisor: Supervisor

    def probe() -> bool:
        supervisor.request_stop()
        started.set()
        return False

    supervisor, _ = supervise(python("slow", RUNS_UNTIL_STOPPED, probe=probe, ready_seconds=3600))
    assert not supervisor.start()
    assert started.is_set()
    supervisor.stop()
    assert supervisor.pids() == {}


def test_the_log_pads_and_colours_the_name_of_the_program() -> None:
    plain, coloured = io.StringIO(), io.StringIO()
    ProcessLog(plain, ["web", "compactor"]).write("web", "hello")
    ProcessLog(coloured, ["web"], coloured=True).write("web", "hello")
    assert plain.getvalue() == "web       | hello\n"
    assert coloured.getvalue() == "\x1b[36mweb     |\x1b[0m hello\n"
