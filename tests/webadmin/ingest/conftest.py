"""A web process that distributes to writers which keep what they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from engine.storage.local import LocalStore
from tests.webadmin.ingest.writer_double import WriterDouble, ring_of
from webadmin.base.access.scopes import SCOPE_PUSH
from webadmin.base.access.services import issue_worker_credential
from webadmin.ingest import distributor
from webadmin.ingest.distributor import Distributor
from webadmin.ingest.models import PushCount


@dataclass
class Doors:
    """The doors of one web process; senders are trusted unless a test says otherwise."""

    distributor: Distributor
    writers: list[WriterDouble]
    client: Client = field(default_factory=Client)

    def post(self, path: str, body: bytes, kind: str = "application/proto", **headers: str) -> HttpResponse:
        return self.client.post(path, data=body, content_type=kind, CONTENT_TYPE=kind, headers=headers)  # type: ignore[return-value]

    def counts(self) -> dict[tuple[str, str], int]:
        """Return how many profiles had which outcome, by tenant, as operators see it."""
        self.distributor.flush_counts()
        return {(row.tenant, row.outcome): row.count for row in PushCount.objects.all()}

    def series(self) -> list[Any]:
        """Return every profile that any writer was sent."""
        return [series for writer in self.writers for series in writer.series]


@pytest.fixture
def make_doors(db: None, tmp_path: Path, settings: Any) -> Iterator[Callable[[int], Doors]]:
    settings.TRUST_TENANT_HEADER = True
    made: list[Doors] = []

    def make(writers: int) -> Doors:
        doubles = [WriterDouble(f"writer-{number}") for number in range(writers)]
        found = Distributor(LocalStore(tmp_path))
        found.placement.refresh_rules()
        found.placement.offer_ring(ring_of(*doubles))
        distributor.use(found)
        made.append(Doors(found, doubles))
        return made[-1]

    yield make
    distributor.use(None)
    for doors in made:
        doors.distributor.close()
        for writer in doors.writers:
            writer.stop()


@pytest.fixture
def doors(make_doors: Callable[[int], Doors]) -> Doors:
    """Doors with one writer behind them."""
    return make_doors(1)


@pytest.fixture
def credential(db: None) -> Callable[..., str]:
    """Issue a credential for tenants; return its wire form."""

    def issue(*tenants: str, scopes: tuple[str, ...] = (SCOPE_PUSH,)) -> str:
        all_scopes = [*scopes, *(f"tenant:{tenant}" for tenant in tenants)]
        name = f"pusher-{'-'.join(all_scopes)}"
        return issue_worker_credential(name=name, scopes=all_scopes, actor="test").wire_form

    return issue
