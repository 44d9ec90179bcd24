"""What ``migrate`` does with buckets and steps of earlier builds."""

from __future__ import annotations

import importlib

import pytest
from django.apps import apps

from engine.storage import ObjectStore
from tests.webadmin.lanes.tsdb.conftest import ORDER
from tests.webadmin.lanes.tsdb.fake_bucket import HOUR_MS, block_id, put_block
from tests.webadmin.service import Service
from webadmin.lanes.tsdb.models import Bucket, OutboxStep
from webadmin.lanes.tsdb.services import rounds
from webadmin.lanes.tsdb.services.buckets import adopt_bucket

pytestmark = pytest.mark.django_db


def migration(name: str) -> object:
    return importlib.import_module(f"webadmin.lanes.tsdb.migrations.{name}")


def test_buckets_that_named_no_replica_labels_name_the_usual_ones(service: Service, store: ObjectStore) -> None:
    for name, layout, labels in (("old", "thanos", ""), ("chosen", "thanos", "pair"), ("other", "cortex", "")):
        adopt_bucket(url=f"{store.url}/{name}", layout=layout, name=name, order=ORDER, replica_labels=labels)
    migration("0008_replica_labels_are_named").name_the_usual(apps, None)  # type: ignore[attr-defined]
    assert dict(Bucket.objects.values_list("name", "replica_labels")) == {
        "chosen": "pair",
        "old": "prometheus_replica,receive_replica,replica,rule_replica",
        "other": "",
    }


def test_open_steps_name_the_blocks_that_were_in_their_words(
    service: Service, bucket: Bucket, store: ObjectStore
) -> None:
    held, whole = block_id(0), block_id(1)
    put_block(store, "acme/", held, 0, 2 * HOUR_MS)
    put_block(store, "acme/", whole, 0, 2 * HOUR_MS, level=2, sources=[held, block_id(2)])
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    step = OutboxStep.objects.get()
    assert step.covered_by == [whole]
    OutboxStep.objects.update(covered_by=[])
    migration("0009_covering_blocks").name_covering(apps, None)  # type: ignore[attr-defined]
    step.refresh_from_db()
    assert step.covered_by == [whole]
