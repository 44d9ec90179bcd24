"""The look at the log's positions with which a process of the web begins."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Any

import pytest
from django.db import InterfaceError

from engine.storage import open_store
from webadmin.schedule.history_check import check_history
from webadmin.schedule.log_position import LogPosition
from webadmin.schedule.models import EPOCH_MAX, AheadPosition
from webadmin.schedule.services import guard_deletions


@pytest.mark.timeout(30)
def test_a_store_that_does_not_answer_does_not_keep_a_process_from_serving(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.OBJECT_STORE_URL = f"s3://bucket?endpoint=http://127.0.0.1:{silent.getsockname()[1]}"
        assert check_history(wait_seconds=0.1).is_alive()


@pytest.mark.django_db(transaction=True)
def test_the_log_is_continued_before_a_process_serves(settings: Any, tmp_path: Path) -> None:
    settings.OBJECT_STORE_URL = f"file://{tmp_path}"
    ahead = LogPosition(epoch="e" * EPOCH_MAX, command_index=77, entry="0" * 32, written_at_ms=1)
    open_store(settings.OBJECT_STORE_URL).put(ahead.key, ahead.encode())
    assert not check_history(wait_seconds=20.0).is_alive()
    assert AheadPosition.objects.get().command_index == 77


def test_a_database_that_is_away_does_not_keep_a_process_from_serving(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise InterfaceError("connection already closed")

    monkeypatch.setattr(guard_deletions, "note_own_positions", refuse)
    with caplog.at_level(logging.WARNING):
        check_history(wait_seconds=20.0)
    assert "log_positions_not_read reason=connection already closed" in caplog.text
