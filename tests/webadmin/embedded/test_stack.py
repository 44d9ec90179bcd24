"""What the stack on one machine is made of, and that its own Redis is a real and a private one."""

from __future__ import annotations

import io
import socket
import stat
import threading
from pathlib import Path

import pytest

from webadmin.embedded.addresses import answers_http, answers_redis, free_port
from webadmin.embedded.process_log import ProcessLog
from webadmin.embedded.program import Program, Run
from webadmin.embedded.stack import StackSettings, describe_stack
from webadmin.embedded.supervisor import Supervisor


def stack(home: Path, **settings: str) -> list[Program]:
    return describe_stack(
        StackSettings(
            home=home, web_port=8123, object_store_url="file:///objects", worker_credential="lw_x", **settings
        )
    )


def by_name(programs: list[Program]) -> dict[str, Program]:
    return {program.name: program for program in programs}


def test_the_compactor_starts_last_and_so_stops_first(tmp_path: Path) -> None:
    assert [p.name for p in stack(tmp_path)] == ["redis", "writer-1", "writer-2", "web", "beat", "control", "compactor"]


def test_a_given_broker_is_used_instead_of_our_own(tmp_path: Path) -> None:
    programs = stack(tmp_path, broker_url="redis://elsewhere:6379/3")
    assert "redis" not in by_name(programs)
    assert {p.environment["BROKER_URL"] for p in programs} == {"redis://elsewhere:6379/3"}


def test_the_node_sees_the_service_but_neither_database_nor_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = by_name(stack(tmp_path))["compactor"]
    assert node.environment["SERVICE_URL"] == "http://127.0.0.1:8123"
    assert node.environment["WORKER_CREDENTIAL"] == "lw_x"
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret@nowhere/db")
    printing = Program(name="env", command=("env",), without=node.without, runs_once=True)
    output = io.StringIO()
    supervisor = Supervisor([printing], ProcessLog(output, ["env"]))
    assert supervisor.start()
    assert "PATH=" in output.getvalue()
    assert "DATABASE_URL" not in output.getvalue()


def test_only_the_node_is_given_the_workers_credential(tmp_path: Path) -> None:
    assert [p.name for p in stack(tmp_path) if "WORKER_CREDENTIAL" in p.environment] == ["compactor"]


def test_the_embedded_redis_needs_its_password(tmp_path: Path) -> None:
    redis = by_name(stack(tmp_path))["redis"]
    configuration = Path(redis.command[1])
    assert stat.S_IMODE(configuration.stat().st_mode) == 0o600
    port = int(next(line for line in configuration.read_text().splitlines() if line.startswith("port")).split()[1])
    output = io.StringIO()
    supervisor = Supervisor([redis], ProcessLog(output, ["redis"]))
    try:
        assert supervisor.start()
        assert not answers_redis(port, "guessed")
    finally:
        supervisor.stop()
    assert "redis stopped" in output.getvalue()


def test_a_taken_port_is_replaced_by_a_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) not in (0, port)
        free = free_port()
    assert free_port(free) == free


def test_probes_of_a_closed_port_are_false() -> None:
    port = free_port()
    assert not answers_http(port, "/healthz")
    assert not answers_redis(port, "any")


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    ended = threading.Event()
    lines: list[int] = []
    program = Program(name="noisy", command=("head", "-c", "300000", "/dev/zero"))
    run = Run(program, lambda _, line: lines.append(len(line)), ended.set)
    assert ended.wait(20)
    assert run.exit_code == 0
    assert sum(lines) == 300_000
    assert max(lines) == 64 << 10
