"""A caller with an access key, and a repository that he has made over HTTP."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.test import Client

from webadmin.lanes.catalog.api.access_keys import issue_access_key

ROOT = "/lakefs/api/v1/"


class Caller:
    """Somebody with an access key for a tenant; what he gets back is a status and a document."""

    def __init__(self, name: str = "ann", *, tenant: str = "acme", may_write: bool = True) -> None:
        key = issue_access_key(name=name, tenant=tenant, may_write=may_write, actor="test")
        told = f"{key.access_key_id}:{key.secret_access_key}".encode()
        self.name = name
        self.authorization = "Basic " + base64.b64encode(told).decode()

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send a request; bytes are sent as they are, anything else as JSON."""
        sent = {"Authorization": self.authorization} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        kind = sent.pop("Content-Type", "application/octet-stream" if isinstance(body, bytes) else "application/json")
        return Client().generic(method, ROOT + path, data, content_type=kind, headers=sent)

    def told(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        """Send a request that is to be refused; return the status and the message."""
        answer = self.send(method, path, body, **headers)
        assert list(answer.json()) in (["message"], ["message", "reference"]), answer.content
        return answer.status_code, answer.json()["message"]

    def get(self, path: str, **headers: str) -> Any:
        return self.send("GET", path, **headers)

    def put(self, key: str, data: bytes, branch: str = "main", **headers: str) -> Any:
        """Upload an object to the repository ``books``; the key is part of the query as it is."""
        return self.send("POST", f"repositories/books/branches/{branch}/objects?path={key}", data, **headers)


@pytest.fixture
def caller(db: None, tmp_path: Path, settings: LazySettings) -> Caller:
    """The repository ``books`` of the tenant ``acme`` with nothing in it."""
    return new_caller(tmp_path, settings)


def new_caller(folder: Path, settings: LazySettings) -> Caller:
    """Make the repository ``books`` of the tenant ``acme`` with nothing in it."""
    settings.OBJECT_STORE_URL = str(folder / "objects")
    settings.TABLES_URL = str(folder / "tables")
    found = Caller()
    made = found.send("POST", "repositories", {"name": "books", "storage_namespace": "local://books"})
    assert made.status_code == 201, made.content
    return found
