"""Fixtures of buckets with Prometheus blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.storage import ObjectStore, open_store
from tests.webadmin.lanes.tsdb.fake_bucket import FakeNode
from tests.webadmin.service import Service
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.tsdb.models import Bucket
from webadmin.lanes.tsdb.services.buckets import adopt_bucket

CONTEXT = ActionContext(actor="test", why="a test")


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "bucket"))


@pytest.fixture
def bucket(service: Service, store: ObjectStore) -> Bucket:
    """A bucket of Cortex, adopted, whose blocks may be merged at once."""
    return adopt_bucket(url=store.url, layout="cortex", name="metrics", context=CONTEXT, consistency_delay_seconds=0)


@pytest.fixture
def node(service: Service, store: ObjectStore) -> FakeNode:
    return FakeNode(service.worker(), store)
