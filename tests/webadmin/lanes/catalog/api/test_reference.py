"""The page of the catalog's API says what is served, and what is served is what the SDK asks for."""

from __future__ import annotations

import inspect
import io
import json
import re

import lakefs_sdk
import pytest
from django.core.management import CommandError, call_command
from django.urls import resolve

from tests.processes import ROOT
from webadmin.base.access.models import AuditEntry, Tenant, WorkerCredential
from webadmin.lanes.catalog.api.operations import OPERATIONS, WRITING

PAGE = (ROOT / "docs/reference/catalog-api.md").read_text()
APIS = [kind for name, kind in vars(lakefs_sdk).items() if name.endswith("Api")]


def asked(name: str) -> set[tuple[str, str]]:
    """Return the methods and paths, without names, that the SDK's clients send for an operation."""
    sending = [found for kind in APIS if (found := getattr(kind, f"{name}_with_http_info", None))]
    told = [re.search(r"call_api\(\s*'([^']+)', '(\w+)'", inspect.getsource(method)) for method in sending]
    return {(each[2], nameless(each[1])) for each in told if each}


def nameless(path: str) -> str:
    return re.sub(r"\{\w+\}", "{}", path)


def test_the_page_lists_every_operation_and_no_other() -> None:
    listed = re.findall(r"^\| `(\w+) /([^`]*)` \| `(\w+)` \| ", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted((each.method, each.path, each.name) for each in OPERATIONS)


def test_every_operation_is_one_of_the_sdk() -> None:
    for operation in OPERATIONS:
        assert asked(operation.name) == {(operation.method, nameless("/" + operation.path))}


def test_a_name_with_slashes_does_not_swallow_the_operation_behind_it() -> None:
    at = "/lakefs/api/v1/repositories/books"
    for path, names in (
        ("/tags/v1/final", {"tag": "v1/final"}),
        ("/refs/a/b/objects/ls", {"ref": "a/b"}),
        ("/refs/a/b/diff/c/d", {"left": "a/b", "right": "c/d"}),
        ("/branches/a/b/objects/stat/user_metadata", {"branch": "a/b"}),
    ):
        assert resolve(at + path).kwargs == {"repository": "books"} | names


def test_a_key_is_made_by_command_shown_once_and_audited(db: None) -> None:
    out = io.StringIO()
    call_command("catalog", "access-key", "ann", "--tenant", "acme", "--read-only", "--json", stdout=out)
    told = json.loads(out.getvalue())
    credential = WorkerCredential.objects.get()
    assert credential.scopes == ["catalog:read", "tenant:acme"]
    assert told["access_key_id"] == f"lw_{credential.key_id}"
    assert told["secret_access_key"] not in str(WorkerCredential.objects.values().get())
    assert AuditEntry.objects.get().target == "ann"
    assert not Tenant.objects.exists(), "a tenant appears with its first repository"
    with pytest.raises(CommandError, match="ann"):
        call_command("catalog", "access-key", "ann", "--tenant", "acme")
    for tenant in ("", "*", "a/b", "."):
        with pytest.raises(CommandError, match="tenant"):
            call_command("catalog", "access-key", "other", "--tenant", tenant)
    assert sum(each.writes for each in OPERATIONS) == len(WRITING)
