"""Explain knows tenants, tables and repositories, and names the job and the pause that a Prometheus block waits for."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from django.core.management import call_command

from engine.schedule.limits import Scope, ScopeKind
from engine.storage import open_store
from tests.webadmin.admin import timeline_rows
from tests.webadmin.lanes.tsdb.fake_bucket import HOUR_MS, block_id, put_block
from tests.webadmin.service import REASON, Service
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.tables.models import DataSource
from webadmin.lanes.tsdb.models import BucketTenant
from webadmin.lanes.tsdb.services import rounds
from webadmin.lanes.tsdb.services.buckets import adopt_bucket
from webadmin.schedule.explain import explain_name
from webadmin.schedule.models import Job
from webadmin.schedule.services.pause_schedule import pause, resume

OPERATOR = ActionContext(actor="operator", why="maintenance")


def said(name: str) -> str:
    out = StringIO()
    call_command("explain", name, stdout=out)
    return out.getvalue()


def test_a_tenant_is_explained_over_all_lanes(service: Service) -> None:
    worker = service.worker()
    service.add_segments(20)
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=0)
    assert "Tenant acme is waiting: 1 block in queues; more data or time makes it due." in said("acme")
    pause(scope=Scope(ScopeKind.TENANT, "acme"), context=OPERATOR)
    told = said("acme")
    assert "Tenant acme is paused: an operator paused tenant acme (pause): 1 block in queues" in told
    assert "it is planned and assigned after the pause ends" in told


def test_a_tenant_is_explained_with_what_waits_in_each_lane(service: Service, tmp_path: Path) -> None:
    timeline_rows.fill_timeline()
    planned_bucket(tmp_path)
    BucketTenant.objects.update(compactions=2, waiting=6)
    tables, blocks = "25 chunks of acme/orders (tables)", "6 blocks of metrics/acme (tsdb)"
    told = said("acme")
    assert told.startswith("Tenant acme is waiting: ")
    assert tables in told
    assert blocks in told
    pause(scope=Scope(ScopeKind.LANE, "tables"), context=OPERATOR)
    told = said("acme")
    assert told.startswith("Tenant acme is waiting: ")
    assert "an operator paused lane tables (pause)" in told
    pause(scope=Scope(ScopeKind.LANE, "tsdb"), context=OPERATOR)
    told = said("acme")
    assert told.startswith("Tenant acme is paused: ")
    assert "lane tables (pause)" in told
    assert "lane tsdb (pause)" in told
    assert tables in told
    assert blocks in told


def test_a_table_is_explained_with_its_pause_and_its_refusal(service: Service) -> None:
    source = timeline_rows.fill_timeline()
    told = said(str(source))
    assert told.startswith(f"Table {source} is in need of attention: ")
    assert "1 chunk quarantined" in told
    broken = DataSource.objects.get(name="broken")
    assert f"Table {broken} is not planned: " in said(str(broken))
    pause(scope=Scope(ScopeKind.LANE, "tables"), context=OPERATOR)
    assert f"Table {source} is paused: an operator paused lane tables (pause)" in said(str(source))


def planned_bucket(tmp_path: Path) -> str:
    """Adopt a bucket with two blocks that overlap; return the id of one. Their group has a job."""
    store = open_store(str(tmp_path / "bucket"))
    adopt_bucket(url=store.url, layout="cortex", name="metrics", context=OPERATOR, consistency_delay_seconds=0)
    for number in range(2):
        put_block(store, "acme/", block_id(number), 0, 2 * HOUR_MS)
    put_block(store, "acme/", block_id(9), 4 * HOUR_MS, 6 * HOUR_MS)
    rounds.scan_buckets(lambda url: store)
    return block_id(0)


def test_a_block_of_a_bucket_names_its_job_and_the_pause(service: Service, tmp_path: Path) -> None:
    ulid, store = planned_bucket(tmp_path), open_store(str(tmp_path / "bucket"))
    tenant = Scope(ScopeKind.TENANT, "acme")
    pause(scope=tenant, context=OPERATOR)
    assert "an operator paused tenant acme (pause)" in said(ulid)
    resume(scope=tenant, context=OPERATOR)
    rounds.plan_due(lambda url: store)
    job = Job.objects.get()
    assert f"of job {job.name}, which is waiting (no worker polls)" in said(ulid)
    pause(scope=tenant, context=OPERATOR)
    told = said(ulid)
    assert f"of job {job.name}, which is waiting (an operator paused tenant acme (pause))" in told
    assert "it is assigned after the pause ends" in told
    assert "Tenant acme is paused: an operator paused tenant acme (pause): 1 job waiting" in said("acme")


def test_a_parked_job_of_a_tenant_is_named(service: Service) -> None:
    worker = service.worker()
    for _ in range(10):
        service.add_segments(20)
        [spec] = worker.take()
        worker.poll(worker.success(spec.job), capacity=0)
    for _ in range(4):
        [spec] = worker.take()
        worker.poll(worker.released(spec.job, REASON), capacity=0)
    [told] = explain_name("acme")
    assert (told.state, told.why) == ("parked", "1 job parked")
    assert "requeueing" in told.next
