"""A person who is signed in, and the small profiles that viewers are tested with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.http import HttpResponse
from django.test import Client

from tests.webadmin.ingest.conftest import credential  # noqa: F401  (a fixture)
from tests.webadmin.query.conftest import stored  # noqa: F401  (a fixture)
from tests.webadmin.query.viewers.conftest import CPU, Viewer, viewer  # noqa: F401  (a fixture)


@dataclass
class Visitor:
    """Asks as the page's script does."""

    viewer: Viewer
    client: Client = field(default_factory=Client)

    def sign_in(self, *groups: str, is_superuser: bool = False) -> Visitor:
        """Sign in as a member of staff in these groups."""
        name = "operator" if is_superuser else f"member of {' '.join(groups)}"
        user = User.objects.create(username=name, is_staff=True, is_superuser=is_superuser)
        user.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
        self.client.force_login(user)
        return self

    def get(self, what: str, **query: Any) -> HttpResponse:
        """Ask about the minute of the test, unless ``query`` says otherwise; None leaves a part out."""
        times = {"from": self.viewer.start_ms, "until": self.viewer.start_ms + 60_000}
        every = {"tenant": "quarry", "service": "web", "type": CPU, **times, **query}
        return self.client.get(  # type: ignore[return-value]
            f"/admin/flame-graph/data/{what}", {name: value for name, value in every.items() if value is not None}
        )

    def ask(self, what: str, **query: Any) -> Any:
        """Return what a question that is answered was answered."""
        response = self.get(what, **query)
        assert response.status_code == 200, response.content
        return response.json()

    def open(self, data: bytes, **query: str) -> HttpResponse:
        """Open a file in the page."""
        address = "/admin/flame-graph/data/open-file"
        return self.client.post(address, data, content_type="application/octet-stream", query_params=query)  # type: ignore[return-value]


@pytest.fixture
def visitor(viewer: Viewer) -> Visitor:  # noqa: F811
    return Visitor(viewer).sign_in(is_superuser=True)


@pytest.fixture
def visit(viewer: Viewer) -> Callable[..., Visitor]:  # noqa: F811
    """Another person."""
    return lambda *groups, **options: Visitor(viewer).sign_in(*groups, **options)
