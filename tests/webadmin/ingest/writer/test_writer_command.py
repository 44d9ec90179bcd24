"""``manage.py writer``: what it refuses to start with, and the life of one process on an own database."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from engine.storage import open_store
from tests.processes import Processes, answers_http
from webadmin.schedule.log_position import LogPosition
from webadmin.schedule.models import EPOCH_MAX


def test_a_port_in_use_is_a_command_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(CommandError, match="choose another --port"):
        call_command("writer", port=taken.getsockname()[1])


@pytest.mark.parametrize("options", [{"address": "nowhere"}, {"tokens": 0}, {"zone": "z" * 200}])
def test_what_cannot_be_registered_does_not_start(options: dict[str, object]) -> None:
    with pytest.raises(CommandError, match="give"):
        call_command("writer", **options)


@pytest.mark.stack
def test_a_writer_that_starts_before_its_tables_waits_for_them_and_ends_cleanly(tmp_path: Path) -> None:
    environment = {
        "LITHIFY_HOME": str(tmp_path),
        "DATABASE_URL": f"sqlite:///{tmp_path}/database.sqlite3",
        "OBJECT_STORE_URL": f"file://{tmp_path}/objects",
        "DJANGO_SETTINGS_MODULE": "webadmin.settings",
    }
    with Processes() as processes:
        port = _free_port()
        writer = processes.start_python(
            "writer", "manage.py", "writer", "--port", str(port), "--instance-id", "w1", environment=environment
        )
        writer.wait_for_line("heartbeat_failed")
        assert answers_http(f"http://127.0.0.1:{port}/healthz")
        assert not answers_http(f"http://127.0.0.1:{port}/readyz")
        migrating = processes.start_python("migrate", "manage.py", "migrate", "-v", "0", environment=environment)
        assert migrating.wait(60) == 0
        writer.wait_for_line("writer_ready")
        assert answers_http(f"http://127.0.0.1:{port}/readyz")
        os.kill(writer.pid, signal.SIGTERM)
        assert writer.wait(20) == 0
        writer.wait_for_line("writer_stopped")
        ahead = LogPosition(epoch="e" * EPOCH_MAX, command_index=77, entry="0" * 32, written_at_ms=1)
        open_store(environment["OBJECT_STORE_URL"]).put(ahead.key, ahead.encode())
        again = processes.start_python(
            "again", "manage.py", "writer", "--port", str(port), "--instance-id", "w1", environment=environment
        )
        again.wait_for_line("log_behind position=77")
        again.wait_for_line("writer_ready")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
