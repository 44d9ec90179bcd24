"""The worker process as its master sees it."""

from __future__ import annotations

import itertools
import os
import time
from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.config import Config

from webadmin.serving import web_worker
from webadmin.serving.web_worker import WebWorker


class CountingWorker(WebWorker):
    """Serves no requests and ends after three beats."""

    beats = 0

    def notify(self) -> None:
        """Count."""
        self.beats += 1
        if self.beats == 3:
            self._stop()


def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return []


@pytest.mark.timeout(30)
def test_a_process_beats_while_its_wall_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its master would end it after ``--timeout`` seconds without a beat."""
    days = itertools.count()
    now = time.time()
    monkeypatch.setattr(web_worker, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(time, "time", lambda: now - 86_400 * next(days))
    worker = CountingWorker(0, os.getppid(), [], SimpleNamespace(), 30, Config(), SimpleNamespace(reopen_files=None))
    worker.wsgi = application
    worker.run()
    assert worker.beats >= 3
