"""When a worker polled last, and whether it is silent: by one clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.webadmin.service import Service
from webadmin.schedule.models import Worker


@pytest.mark.parametrize("days", [1, -1])
def test_the_time_of_the_last_poll_is_read_from_the_database_clock(
    service: Service, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """A web process whose clock is wrong neither hides that a worker is silent nor makes one seem so."""
    worker = service.worker()
    now = service.people_time()
    monkeypatch.setattr(service, "people_time", lambda: now + timedelta(days=days))
    for _ in range(2):
        service.clock.advance(10)
        worker.poll(capacity=0)
        assert Worker.objects.get().last_poll_at == datetime.fromtimestamp(service.clock.now_ms / 1000, UTC)
