"""Every address of the web process, taken from its own table: who may use it, what it tells of others, what it records.

A new endpoint fails here until it has its line in CALLS, or in OPEN with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.proto import block_list_pb2
from engine.storage import open_store
from tests.block_factory import block_meta, segment_ids
from tests.webadmin.hostile.conftest import Caller, every_row, refusals
from tests.webadmin.lanes.catalog.short import new_catalog
from tests.webadmin.lanes.tables.parquet_files import day, put_rows
from tests.webadmin.service import REASON, Service
from webadmin.base.access.models import AuditEntry
from webadmin.base.access.services import issue_worker_credential
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.catalog.models import Repository
from webadmin.lanes.catalog.services.repositories import delete_repository
from webadmin.lanes.profiles.block_list import CONTENT_TYPE
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.lanes.tables.models import BadFile, Chunk, DataSource
from webadmin.lanes.tables.services.overrides import override_chunks
from webadmin.lanes.tables.services.read_files import OfferedFile
from webadmin.lanes.tables.services.sources import NewTable, create_table
from webadmin.lanes.tables.services.take_files import take_files
from webadmin.lanes.tables.states import ChunkOverrideKind, RegistrationMode
from webadmin.lanes.tsdb.models import Bucket
from webadmin.placement.services.instances import Registration, register_instance
from webadmin.schedule.models import Command, Job
from webadmin.schedule.operation_models import IsolationStop

SCOPES = (
    "jobs:poll",
    "credentials:manage",
    "blocks:add",
    "blocks:query",
    "read",
    "operate",
    "tables:read",
    "tables:write",
)
SECRET = "only-acme-knows"
WHY = {"why": "a test"}
ALL = WHY | {"filter": {"all": True}}
OPEN = {
    "": "leads to the admin",
    "healthz": "asked by machines",
    "readyz": "asked by machines",
    "progressz": "asks for METRICS_TOKEN; names nothing",
    "metrics": "asks for METRICS_TOKEN",
    "api/schema/": "asks for METRICS_TOKEN, or for somebody who is signed in",
    "api/docs/": "asks for METRICS_TOKEN, or for somebody who is signed in",
}
INGEST_VIEWS = {
    r"^(?:.+/)?push\.v1\.PusherService/Push$",
    "ingest",
    "pyroscope/ingest",
    "v1development/profiles",
    "opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
}
"""What profilers send to, with credentials of their own kind: tests/webadmin/ingest."""
VIEWERS = {
    r"^(?:.+/)?querier\.v1\.QuerierService/(?P<method>[A-Za-z]+)$",
    "pyroscope/render",
    "pyroscope/render-diff",
    "pyroscope/label-values",
    "pyroscope/labels",
}
"""What viewers ask, with credentials of their own kind: tests/webadmin/query/viewers."""
CATALOG = "lakefs/"
"""What the SDKs of lakeFS ask, with keys and errors of their own form: tests/webadmin/lanes/catalog/api."""
ADMIN_OPEN = {"admin/login/", "admin/logout/"}
ADMIN_DATA = re.compile(r"admin/flame-graph/data/.*|admin/timeline-page/<int:source_id>/(data|chunk/.*)")
"""What a page's script asks: it is told in words that nobody is signed in, and cannot follow people to the login."""


@dataclass(frozen=True)
class Call:
    """How an endpoint is called: the body of a good POST, what is there before, and whether it changes anything."""

    get: bool = False
    body: Any = None
    content_type: str = "application/json"
    before: str = ""
    changes: bool = True


CATALOG_CALL = WHY | {"tenant": "acme", "repository": "lake"}
CALLS: dict[str, Call] = {
    "jobs/poll": Call(body={"worker": "w", "build": "b", "capacity": 1, "updates": []}, before="segments"),
    "credentials": Call(get=True, body=WHY | {"name": "new", "scopes": ["read"]}),
    "credentials/rotate": Call(body=WHY | {"name": SECRET}, before="credential"),
    "credentials/expire": Call(body=WHY | {"name": SECRET, "expires_at": None}, before="credential"),
    "credentials/revoke": Call(body=WHY | {"name": SECRET}, before="credential"),
    "blocks": Call(body="the secret list", content_type=CONTENT_TYPE),
    "blocks/query": Call(body={"tenants": ["acme"], "start_ms": 0, "end_ms": 1 << 45}, changes=False),
    "explain/<path:name>": Call(get=True),
    "operations/push-limits": Call(get=True, body=WHY | {"limit": "series_max", "value": 10, "tenant": "acme"}),
    "progress": Call(get=True),
    "operations/limits": Call(get=True, body=WHY | {"limit": "failures_max", "value": 10}),
    "operations/level-policies": Call(get=True, body=WHY | {"level": 0, "numbers": {"blocks_max": 7}}),
    "operations/pauses": Call(get=True, body=WHY | {"mode": "drain"}),
    "operations/resume": Call(body=WHY, before="drained"),
    "operations/parked": Call(get=True),
    "operations/quarantine": Call(get=True),
    "operations/isolation": Call(get=True, body=WHY | {"lane": "profiles", "decision": "retry"}, before="stopped"),
    "operations/breakages": Call(get=True),
    "operations/release": Call(body=WHY | {"all": True}, before="quarantined"),
    "operations/retry-letters": Call(body=WHY | {"letters": ["none"]}, changes=False),
    "operations/discard-letters": Call(body=WHY | {"letters": ["none"]}, changes=False),
    "operations/requeue": Call(body=ALL, before="parked"),
    "operations/cancel": Call(body=ALL, before="leased"),
    "operations/return-job-blocks": Call(body=ALL, before="parked"),
    "operations/reset-failures": Call(body=ALL, before="failed"),
    "operations/pin": Call(body=ALL | {"worker": "runner"}, before="leased"),
    "operations/unpin": Call(body=ALL, before="pinned"),
    "operations/retention": Call(body=WHY, before="old"),
    "operations/retention-rules": Call(body=WHY | {"tenant": "acme", "keep_days": 1}),
    "operations/holds": Call(body=WHY | {"tenant": "acme"}),
    "operations/delete-requests": Call(get=True, body=WHY | {"tenant": "acme"}, before="segments"),
    "placement/rules": Call(get=True),
    "placement/changes": Call(get=True),
    "placement/instances": Call(get=True),
    "placement/limits": Call(get=True, body=WHY | {"tenant": "acme", "numbers": {"tenant_shards": 4}}),
    "placement/overrides": Call(
        get=True, body=WHY | {"tenant": "acme", "dataset": SECRET, "override": {"dataset_shards": 4}}
    ),
    "placement/drain": Call(body=WHY | {"instances": ["writer-1"]}, before="writers"),
    "placement/ring-size": Call(body=WHY | {"shards": 40}, before="writers"),
    "tables/<str:tenant>": Call(
        get=True, body=WHY | {"name": SECRET, "url": "file:///nowhere/at/all", "time_column": "ts"}
    ),
    "tables/<str:tenant>/<str:name>": Call(get=True, body=WHY | {"is_paused": True}, before="table"),
    "tables/<str:tenant>/<str:name>/segments": Call(
        get=True, body=WHY | {"files": [{"path": "0.parquet"}]}, before="table"
    ),
    "tables/<str:tenant>/<str:name>/drop": Call(body=WHY | {"start_ms": day(0), "end_ms": day(1)}, before="full table"),
    "tables/<str:tenant>/<str:name>/chunks": Call(get=True, before="full table"),
    "tables/<str:tenant>/<str:name>/tasks": Call(get=True, before="full table"),
    "tables/<str:tenant>/<str:name>/overrides": Call(
        get=True, body=WHY | {"kind": "never", "start_ms": day(0), "end_ms": day(1)}, before="full table"
    ),
    "tables/<str:tenant>/<str:name>/overrides/end": Call(
        body=WHY | {"start_ms": day(0), "end_ms": day(1)}, before="overridden table"
    ),
    "tables/<str:tenant>/<str:name>/retry": Call(
        body=WHY | {"start_ms": day(0), "end_ms": day(1)}, before="failing table"
    ),
    "tables/<str:tenant>/<str:name>/bad-files": Call(get=True, before="damaged table"),
    "tables/<str:tenant>/<str:name>/bad-files/release": Call(body=WHY | {"paths": ["bad"]}, before="damaged table"),
    "operations/adopt-bucket": Call(body=WHY | {"url": "file:///nowhere/at/all", "layout": "cortex"}),
    "operations/change-bucket": Call(body=WHY | {"bucket": SECRET, "settings": {"is_paused": True}}, before="bucket"),
    "operations/release-sources": Call(body=WHY | {"blocks": ["none"]}, changes=False),
    "operations/withdraw-result": Call(body=WHY | {"groups": [1], "dry_run": True}, changes=False),
    "operations/change-compaction": Call(body=CATALOG_CALL | {"settings": {"sealed_tokens": 9}}, before="repository"),
    "operations/collect-garbage": Call(body=CATALOG_CALL, before="repository"),
    "operations/compact-branch": Call(body=CATALOG_CALL, before="repository"),
    "operations/restore-repository": Call(body=CATALOG_CALL, before="deleted repository"),
    "placement/what-if": Call(body={"add": ["a"]}, before="writers", changes=False),
}


def addresses(resolver: URLResolver, prefix: str = "") -> Iterator[str]:
    for pattern in resolver.url_patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield path
        else:
            yield from addresses(pattern, path)


EVERY = sorted(set(addresses(get_resolver())))
API = [path.removeprefix("api/v1/") for path in EVERY if path.startswith("api/v1/")]
ADMIN = [path for path in EVERY if path.startswith("admin/")]


def test_every_address_is_known() -> None:
    assert set(API) == set(CALLS), "say in CALLS how a new endpoint is called"
    assert {path for path in EVERY if not path.startswith(("api/v1/", "admin/", CATALOG))} == set(
        OPEN
    ) | INGEST_VIEWS | VIEWERS


def method_calls() -> list[tuple[str, str]]:
    return [
        (path, method)
        for path, call in CALLS.items()
        for method, is_there in (("get", call.get), ("post", call.body is not None))
        if is_there
    ]


def send(caller: Caller, path: str, method: str, service: Service) -> Any:
    call = CALLS[path]
    body = secret_list(service) if call.content_type == CONTENT_TYPE else call.body
    place = path.replace("<path:name>", "nothing").replace("<str:tenant>", "acme").replace("<str:name>", SECRET)
    return caller.send(method, "/api/v1/" + place, body, call.content_type)


def secret_list(service: Service) -> bytes:
    [block_id] = segment_ids(service.clock.now_ms, 1, first=900)
    meta = block_meta(block_id, datasets=[("acme", SECRET)])
    entry = block_list_pb2.BlockEntry(metadata=encode_metadata(meta), size=meta.size)
    return block_list_pb2.BlockMetaList(blocks=[entry]).SerializeToString()


def make_table(folder: Path, wanted: str) -> None:
    """Make an empty table, or one with a chunk (``full``) that is never compacted, fails, or lacks a damaged file."""
    store = open_store(str(folder))
    put_rows(store, "0.parquet", [day(0)])
    context = ActionContext(actor="test", why="a test")
    new = NewTable(tenant="acme", name=SECRET, url=store.url, time_column="ts")
    source = create_table(new, context=context)
    if wanted:
        found = DataSource.objects.select_related("policy").get(id=source.id)
        take_files(found, store, [OfferedFile(path="0.parquet")], mode=RegistrationMode.APPEND, context=context)
    if wanted == "overridden ":
        override_chunks(source, (day(0), day(1)), ChunkOverrideKind.NEVER, context=context)
    elif wanted == "failing ":
        Chunk.objects.update(is_quarantined=True, quarantine_reason="it always fails")
    elif wanted == "damaged ":
        BadFile.objects.create(source=source, path="bad", error_class="BadObject", message=SECRET, at_ms=1)


def prepare(service: Service, wanted: str) -> None:
    """Make what an endpoint needs to have something to do."""
    if wanted == "drained":
        Caller("operate", name="earlier").post("/api/v1/operations/pauses", WHY | {"mode": "drain"})
        return
    if wanted == "stopped":
        IsolationStop.objects.create(
            lane="profiles", at_ms=1, command_index=1, bad_sources=5, merged_sources=1, reason=SECRET
        )
        return
    if wanted == "credential":
        issue_worker_credential(name=SECRET, actor="test")
        return
    if wanted.endswith("repository"):
        repository = new_catalog().repository
        Repository.objects.filter(pk=repository.pk).update(tenant="acme", name="lake")
        if wanted.startswith("deleted"):
            repository.refresh_from_db()
            delete_repository(repository, context=ActionContext(actor="test", why="a test"))
        return
    if wanted == "bucket":
        Bucket.objects.create(name=SECRET, url="file:///nowhere/at/all", layout="cortex")
        return
    if wanted == "writers":
        register_instance(Registration(name="writer-1", address="http://127.0.0.1:1"))
        return
    if wanted.endswith("table"):
        make_table(Path(settings.TABLES_URL.removeprefix("file://")) / "acme" / "lake", wanted.removesuffix("table"))
        return
    if wanted == "old":
        old_id = segment_ids(service.clock.now_ms - 40 * 86_400_000, 1)[0]
        service.add(block_meta(old_id, level=3, tenant="acme", with_index=True), any_age=True)
        return
    if wanted:
        service.add_segments(20, datasets=[("acme", SECRET)])
    if wanted in ("", "segments"):
        return
    worker = service.worker("runner")
    [spec] = worker.take()
    jobs = Job.objects.filter(name=spec.job)
    if wanted == "failed":
        jobs.update(failures=1)
    elif wanted == "pinned":
        body = ALL | {"worker": "runner"}
        assert Caller("operate", name="earlier").post("/api/v1/operations/pin", body).status_code == 200
    elif wanted in ("parked", "quarantined"):
        jobs.update(failures=3)
        worker.poll(worker.released(spec.job, REASON), capacity=0)
        assert jobs.get().state == "parked"
    if wanted == "quarantined":
        block = Block.objects.first()
        Quarantine.objects.create(
            block=block, job=jobs.get(), cause="damaged", error_class="E", attempts=2, at_ms=1, command_index=1
        )


@pytest.mark.parametrize(("path", "method"), method_calls())
def test_it_is_for_those_with_the_right_credential_only(service: Service, path: str, method: str) -> None:
    powerless = Caller(name="powerless")
    before = every_row()
    for bearer in ("", "nonsense", "lw_000000000000_" + "A" * 43):
        answer = send(Caller(bearer=bearer), path, method, service)
        assert (answer.status_code, answer.json()["code"]) in {(401, "not_authenticated"), (401, "credential_refused")}
    answer = send(powerless, path, method, service)
    assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")
    assert every_row() == before
    assert refusals(powerless.name) == {"request.scope_missing": 1}


@pytest.mark.parametrize(("path", "method"), method_calls())
def test_a_credential_of_one_tenant_learns_and_changes_nothing_of_another(
    service: Service, path: str, method: str
) -> None:
    wanted = CALLS[path].before
    prepare(service, "parked" if wanted in ("", "segments") else wanted)
    beta = Caller(*SCOPES, "tenant:beta", name="beta")
    before = every_row()
    answer = send(beta, path, method, service)
    assert SECRET not in answer.content.decode()
    assert not any(block in answer.content.decode() for block in Block.objects.values_list("ulid", flat=True))
    assert every_row() == before
    assert sum(refusals(beta.name).values()) == 1, "refused and counted, as a whole or the one block in it"


@pytest.mark.parametrize(("path", "method"), method_calls())
def test_a_credential_of_one_tenant_is_shown_no_path_of_the_server(
    service: Service, path: str, method: str, tmp_path: Path
) -> None:
    """But for the URL of a table in the tenant's own place, where it writes files."""
    prepare(service, CALLS[path].before)
    acme = Caller(*SCOPES, "tenant:acme", name="acme")
    own = f'"url": "{(tmp_path / "acme").as_uri()}/'
    body = CALLS[path].body
    answers = [send(acme, path, method, service)]
    if method == "post" and isinstance(body, dict):
        place = "/api/v1/" + path.replace("<str:tenant>", "acme").replace("<str:name>", SECRET)
        answers += [acme.post(place, body | {name: -1}) for name in body]
    for answer in answers:
        assert str(tmp_path) not in answer.content.decode().replace('":"', '": "').replace(own, ""), answer.content


@pytest.mark.parametrize("path", [path for path, method in method_calls() if method == "post"])
def test_every_change_is_audited_with_its_actor(service: Service, path: str) -> None:
    call = CALLS[path]
    prepare(service, call.before)
    caller = Caller(*SCOPES, "tenant:*")
    before = every_row()
    known = set(AuditEntry.objects.values_list("id", flat=True))
    last = Command.objects.order_by("-index").values_list("index", flat=True).first() or 0
    answer = send(caller, path, "post", service)
    assert answer.status_code == 200, answer.content
    if not call.changes:
        assert every_row() == before
        return
    audited = AuditEntry.objects.exclude(id__in=known).filter(actor=caller.name)
    logged = Command.objects.filter(index__gt=last, actor__in=[caller.name, "worker:w"])
    assert audited.exists() or logged.exists()
    if path.startswith("operations/"):
        assert audited.exists(), "orders are in the audit log, not only in the command log"


@pytest.mark.parametrize("path", sorted(CALLS))
def test_no_other_method_does_anything(service: Service, path: str) -> None:
    caller = Caller(*SCOPES, "tenant:*")
    before = every_row()
    there = {method for name, method in method_calls() if name == path}
    for method in {"get", "post", "put", "patch", "delete"} - there:
        assert send(caller, path, method, service).status_code == 405
    assert every_row() == before


@pytest.mark.parametrize("method", ["get", "post"])
def test_pages_need_a_signed_in_operator(service: Service, method: str) -> None:
    before = every_row()
    for path in ADMIN:
        if path in ADMIN_OPEN:
            continue
        address = "/" + re.sub(r"<[^>]*>|\(\?P<[^)]*\)[^/]*", "1", path).replace("^", "").replace("$", "")
        answer = getattr(Client(), method)(address)
        if ADMIN_DATA.fullmatch(path):
            assert (answer.status_code, answer.json()["code"]) == (401, "signed_out"), f"{method} {address}"
            continue
        assert answer.status_code == 302, f"{method} {address}"
        assert answer.headers["Location"].startswith("/admin/login/"), f"{method} {address}"
    assert every_row() == before
