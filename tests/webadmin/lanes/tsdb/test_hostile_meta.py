"""A meta.json beyond all reason keeps its own block out, and whatever breaks off stops neither folders nor tenants."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from engine.storage import ObjectStore
from tests.webadmin.admin.conftest import operator  # noqa: F401  (a fixture)
from tests.webadmin.lanes.tsdb.fake_bucket import HOUR_MS, block_id, put_block
from tests.webadmin.progress.test_metrics import scrape
from tests.webadmin.service import Service
from webadmin.lanes.tsdb.explain import explain_blocks
from webadmin.lanes.tsdb.models import Block, Bucket, BucketTenant, Folder
from webadmin.lanes.tsdb.services import plan_tenants, rounds, scan_buckets
from webadmin.schedule.models import Job

SOUND = [block_id(number) for number in range(3)]
HOSTILE = [block_id(number) for number in (7, 8)]

BEYOND: dict[str, dict[str, Any]] = {
    "series": {"stats": {"numSeries": 1 << 63}},
    "series of two": {"stats": {"numSeries": 1 << 62}},
    "samples": {"stats": {"numSamples": (1 << 64) - 1}},
    "tombstones": {"stats": {"numTombstones": 1 << 63}},
    "level": {"compaction": {"level": 1 << 31}},
    "level of a merge": {"compaction": {"level": (1 << 31) - 1}},
    "hint with NUL": {"compaction": {"level": 1, "hints": ["a\0b"]}},
    "long hint": {"compaction": {"level": 1, "hints": ["a" * 300]}},
    "resolution": {"thanos": {"version": 1, "labels": {}, "downsample": {"resolution": 10**399}}},
    "early": {"minTime": -(1 << 63), "maxTime": -(1 << 63) + 10},
    "late": {"minTime": (1 << 63) - 10, "maxTime": (1 << 63) - 1},
    "interval": {"thanos": {"version": 1, "labels": {}, "extensions": {"time_range": (1 << 63) - 1}}},
}


def put_hostile(store: ObjectStore, ulid: str, changes: dict[str, Any]) -> None:
    """Put a block whose ``meta.json`` says something else."""
    put_block(store, "aaa/", ulid, 0, 2 * HOUR_MS)
    document = json.loads(store.get(f"aaa/{ulid}/meta.json"))
    store.put(f"aaa/{ulid}/meta.json", json.dumps(document | changes).encode())


def put_sound(store: ObjectStore) -> None:
    """Put a tenant that comes after the hostile one, with a merge to do."""
    for ulid in SOUND[:2]:
        put_block(store, "zzz/", ulid, 0, 2 * HOUR_MS)
    put_block(store, "zzz/", SOUND[2], 4 * HOUR_MS, 6 * HOUR_MS)


@pytest.mark.parametrize("changes", BEYOND.values(), ids=BEYOND.keys())
def test_an_absurd_block_is_bad_and_affects_no_other(
    bucket: Bucket, store: ObjectStore, changes: dict[str, Any]
) -> None:
    for ulid in HOSTILE:
        put_hostile(store, ulid, changes)
    put_sound(store)
    found = rounds.scan_buckets(lambda url: store)
    assert (found.failed, found.total("bad"), found.total("broken_off")) == ({}, 2, 0)
    assert {one["ulid"] for one in Folder.objects.get(name="aaa/").examined["bad"]} == set(HOSTILE)
    assert set(Block.objects.values_list("ulid", flat=True)) == set(SOUND)
    rounds.plan_due(lambda url: store)
    assert list(Job.objects.values_list("tenant", flat=True)) == ["zzz"]


def test_a_block_that_was_not_indexed_is_shown_with_the_reason(
    bucket: Bucket,
    store: ObjectStore,
    operator: Client,  # noqa: F811
) -> None:
    bad, partial = HOSTILE
    put_hostile(store, bad, BEYOND["level"])
    put_block(store, "aaa/", partial, 0, 2 * HOUR_MS, has_meta=False)
    rounds.scan_buckets(lambda url: store)
    tenant = BucketTenant.objects.get()
    page = operator.get(f"/admin/tsdb/buckettenant/{tenant.id}/change/").content.decode()
    for ulid, why in ((bad, "compaction.level exceeds"), (partial, "its upload is not finished")):
        assert ulid in page
        assert why in page
        [told] = explain_blocks(ulid)
        assert why in told.why
    page = operator.get(f"/admin/tsdb/bucket/{bucket.id}/change/").content.decode()
    assert "Unfinished uploads" in page
    found = scrape()
    assert {state: found["lithify_tsdb_blocks", ("metrics", state, "aaa")] for state in ("bad", "partial")} == {
        "bad": 1,
        "partial": 1,
    }
    store.delete(f"aaa/{partial}/index")
    store.delete(f"aaa/{partial}/chunks/000001")
    put_hostile(store, bad, {})
    rounds.scan_buckets(lambda url: store)
    assert explain_blocks(partial) == []
    assert [told.state for told in explain_blocks(bad)] != ["bad"]


def broken_for(name: str, real: Callable[..., Any], which: Callable[[Any], str]) -> Callable[..., Any]:
    """Return a function that raises an unexpected error for one of them."""

    def ask(subject: Any, *args: Any, **told: Any) -> Any:
        if which(subject) == name:
            raise OverflowError("beyond\0everything")
        return real(subject, *args, **told)

    return ask


def test_a_folder_whose_scan_fails_stops_no_other_and_backs_off(
    service: Service, bucket: Bucket, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_block(store, "aaa/", HOSTILE[0], 0, 2 * HOUR_MS)
    put_sound(store)
    take = scan_buckets.take_scan
    monkeypatch.setattr(scan_buckets, "take_scan", broken_for("aaa/", take, lambda folder: folder.name))
    waits = []
    for failures in (1, 2):
        assert rounds.scan_buckets(lambda url: store).total("broken_off") == 1
        folder = Folder.objects.get(name="aaa/")
        assert (folder.failures, folder.trouble) == (failures, "OverflowError: beyond everything")
        assert rounds.scan_buckets(lambda url: store).total("folders") == 1
        waits.append(folder.again_at_ms - service.clock.now_ms)
        service.clock.advance(waits[-1] / 1000 + 1)
    assert waits[0] < waits[1]
    assert set(Block.objects.values_list("ulid", flat=True)) == set(SOUND)
    monkeypatch.setattr(scan_buckets, "take_scan", take)
    rounds.scan_buckets(lambda url: store)
    folder.refresh_from_db()
    assert (folder.failures, folder.trouble, folder.again_at_ms) == (0, "", 0)
    assert Block.objects.filter(ulid=HOSTILE[0]).exists()


def test_a_tenant_whose_plan_fails_stops_no_other_and_backs_off(
    service: Service, bucket: Bucket, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_block(store, "aaa/", HOSTILE[0], 0, 2 * HOUR_MS)
    put_sound(store)
    rounds.scan_buckets(lambda url: store)
    read = plan_tenants.read_blocks
    monkeypatch.setattr(plan_tenants, "read_blocks", broken_for("aaa", read, lambda tenant: tenant.name))
    assert list(rounds.plan_due(lambda url: store).refused) == ["aaa"]
    assert list(Job.objects.values_list("tenant", flat=True)) == ["zzz"]
    tenant = BucketTenant.objects.get(name="aaa")
    assert "OverflowError: beyond everything" in tenant.refusal
    assert rounds.plan_due(lambda url: store).refused == {}
    monkeypatch.setattr(plan_tenants, "read_blocks", read)
    service.clock.advance((tenant.plan_at_ms or 0) / 1000 - service.clock.now_ms / 1000 + 1)
    rounds.plan_due(lambda url: store)
    tenant.refresh_from_db()
    assert (tenant.refusal, tenant.failures) == ("", 0)
