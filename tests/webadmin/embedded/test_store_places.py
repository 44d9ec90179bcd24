"""Stores that would lie within one another are refused, and so is what lies below no allowed root."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.webadmin.admin.timeline_rows import make_table
from tests.webadmin.hostile.conftest import Caller
from tests.webadmin.service import Service
from webadmin.base.actions.action import ActionContext
from webadmin.embedded.deployment.findings import Level
from webadmin.embedded.deployment.store_places import check_store_places
from webadmin.lanes.tables.errors import TableExists, TableRefused
from webadmin.lanes.tables.models import DataSource
from webadmin.lanes.tables.services.sources import NewTable, create_table
from webadmin.lanes.tsdb.models import Bucket
from webadmin.lanes.tsdb.services.buckets import BucketRefused, adopt_bucket

CONTEXT = ActionContext(actor="test", why="a test")
OVERLAP = "is, holds or lies in the place of another store"


@pytest.fixture(autouse=True)
def root(service: Service, settings: Any, tmp_path: Path) -> str:
    """A folder with a place for each kind of store; all of it is an allowed root."""
    root = tmp_path.as_uri()
    settings.OBJECT_STORE_URL = f"{root}/objects"
    settings.TABLES_URL = f"{root}/tables"
    settings.STORE_ROOTS = [root]
    return root


def table(url: str, name: str = "events", **options: Any) -> DataSource:
    return create_table(NewTable(tenant="acme", name=name, url=url, time_column="ts"), context=CONTEXT, **options)


def bucket(url: str, name: str = "metrics") -> Bucket:
    return adopt_bucket(url=url, layout="cortex", name=name, context=CONTEXT)


@pytest.mark.parametrize("place", ["objects", "objects/x", "", "tables", "lake", "lake/x", "metrics", "metrics/x"])
def test_no_table_lies_in_another_store_or_holds_one(root: str, place: str) -> None:
    table(f"{root}/lake", "lake")
    bucket(f"{root}/metrics")
    with pytest.raises(TableExists, match=OVERLAP):
        table(f"{root}/{place}")
    assert DataSource.objects.count() == 1


@pytest.mark.parametrize("place", ["objects", "objects/x", "", "tables", "tables/acme", "lake", "lake/x", "metrics/x"])
def test_no_bucket_lies_in_another_store_or_holds_one(root: str, place: str) -> None:
    table(f"{root}/lake", "lake")
    bucket(f"{root}/metrics")
    with pytest.raises(BucketRefused, match=OVERLAP):
        bucket(f"{root}/{place}", "other")
    assert Bucket.objects.count() == 1


def test_prefixes_of_one_bucket_overlap_too(settings: Any) -> None:
    settings.STORE_ROOTS = ["s3://data"]
    settings.OBJECT_STORE_URL = "s3://data/lithify?region=eu-west-1"
    make_table(url="s3://data/lake")
    for url in ("s3://data/lithify/x", "s3://data", "s3://data/lake?region=other"):
        with pytest.raises(BucketRefused, match=OVERLAP):
            bucket(url)
    assert bucket("s3://data/lithify-metrics").name == "metrics"


def test_tables_lie_below_tables_url_and_beside_each_other(root: str) -> None:
    assert table(f"{root}/tables/acme/events", is_confined=True).name == "events"
    assert table(f"{root}/tables/acme/events-2", "second", is_confined=True).name == "second"
    with pytest.raises(TableExists, match=f"{OVERLAP}: table acme/events$"):
        table(f"{root}/tables/acme/events/inner", "third", is_confined=True)


def test_the_check_of_the_deployment_names_stores_that_overlap(root: str, settings: Any) -> None:
    bucket(f"{root}/metrics")
    [found] = check_store_places()
    assert (found.level, found.name) == (Level.OK, "store_places")
    settings.TABLES_URL = f"{root}/objects/tables"
    Bucket.objects.update(url=f"{root}/objects/blocks")
    texts = [found.found for found in check_store_places() if found.level is Level.ERROR]
    assert len(texts) == 2
    named = [(name in texts[0], name in texts[1]) for name in ("OBJECT_STORE_URL", "TABLES_URL", "bucket metrics")]
    assert named == [(True, True), (True, False), (False, True)]


def test_tables_and_buckets_lie_below_an_allowed_root(root: str, settings: Any) -> None:
    settings.STORE_ROOTS = [f"{root}/lake"]
    for url in (f"{root}/elsewhere", f"{root}/lakes", "file:///etc", "s3://bucket", f"{root}/lake/../elsewhere"):
        with pytest.raises(TableRefused, match="add its folder or bucket to STORE_ROOTS"):
            table(url)
        with pytest.raises(BucketRefused, match="add its folder or bucket to STORE_ROOTS"):
            bucket(url)
    assert table(f"{root}/lake/events").name == "events"
    assert bucket(f"{root}/lake/metrics").name == "metrics"
    settings.STORE_ROOTS = []
    warned = [found.found for found in check_store_places() if found.level is Level.WARNING]
    assert [text.split(":")[0] for text in warned] == ["bucket metrics", "table acme/events"]


def test_an_operators_credential_names_no_other_folder_over_rest(root: str, settings: Any, tmp_path: Path) -> None:
    settings.STORE_ROOTS = []
    caller = Caller("tables:write", "operate", "tenant:*")
    body = {"why": "a test", "name": "events", "url": "file:///etc", "time_column": "ts"}
    answer = caller.post("/api/v1/tables/acme", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "table_refused")
    assert not DataSource.objects.exists()


def test_a_tenant_is_shown_no_path_of_the_server(tmp_path: Path) -> None:
    caller = Caller("tables:write", "tenant:acme")
    body = {"why": "a test", "name": "events", "url": "file:///etc", "time_column": "ts"}
    answer = caller.post("/api/v1/tables/acme", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "table_refused")
    assert str(tmp_path) not in answer.content.decode()


def test_nothing_is_adopted_where_a_link_leads(root: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    for url in (f"{root}/link", f"{root}/link/inner"):
        with pytest.raises(TableRefused, match="'link' is a symbolic link"):
            table(url)
        with pytest.raises(BucketRefused, match="'link' is a symbolic link"):
            bucket(url)
