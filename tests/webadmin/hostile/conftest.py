"""Two tenants with something in every place, and callers with credentials of every kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.test import Client

from engine.schedule.model import JobState
from tests.webadmin.service import REASON, FakeWorker, Service
from webadmin.base.access.models import RefusalCount
from webadmin.base.access.services import issue_worker_credential
from webadmin.schedule.models import Job

APPS = ("access", "profiles", "schedule", "progress", "tables")
SEEN = {"last_used_at", "last_poll_at"}
"""Columns that say of the time a process was last seen."""


def every_row() -> dict[str, list[dict[str, Any]]]:
    """Return all rows of all our tables but the counts of what was refused."""
    return {
        model.__name__: [
            {name: value for name, value in row.items() if name not in SEEN}
            for row in model.objects.order_by("pk").values()
        ]
        for app in APPS
        for model in apps.get_app_config(app).get_models()
        if model is not RefusalCount
    }


def refusals(actor: str) -> dict[str, int]:
    """Return how often a sender was refused, by code, as operators see it."""
    return dict(RefusalCount.objects.filter(actor=actor).values_list("code", "count"))


class Caller:
    """Somebody with a credential of these scopes, or none."""

    def __init__(self, *scopes: str, name: str = "caller", bearer: str | None = None) -> None:
        self.name = f"credential:{name}"
        issued = None if bearer is not None else issue_worker_credential(name=name, scopes=scopes, actor="test")
        self.bearer = issued.wire_form if issued else bearer
        self.credential = issued.credential if issued else None

    def send(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        headers = {"Authorization": f"Bearer {self.bearer}"} if self.bearer else {}
        data = body if isinstance(body, bytes | str) else json.dumps(body)
        if method == "get":
            return Client().get(path, headers=headers)
        return getattr(Client(), method)(path, data=data, content_type=content_type, headers=headers)

    def post(self, path: str, body: Any, content_type: str = "application/json") -> Any:
        return self.send("post", path, body, content_type)


@pytest.fixture(autouse=True)
def tables_url(settings: Any, tmp_path: Path) -> None:
    """Tables of tenants, and all objects, lie in a folder of the test."""
    settings.TABLES_URL = tmp_path.as_uri()
    settings.OBJECT_STORE_URL = (tmp_path / "objects").as_uri()


@pytest.fixture
def evicted(service: Service) -> Callable[[FakeWorker], Job]:
    """Return a function that lets a worker fail at its next job until the schedule parks it."""

    def evict(worker: FakeWorker) -> Job:
        job = None
        while job is None or job.state != JobState.PARKED:
            [spec] = worker.take()
            worker.poll(worker.released(spec.job, REASON), capacity=0)
            job = Job.objects.get(name=spec.job)
        return job

    return evict
