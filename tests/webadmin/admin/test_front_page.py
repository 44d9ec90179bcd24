"""The first page an operator sees."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import InterfaceError, OperationalError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.webadmin.admin import rows
from tests.webadmin.admin.catalog_rows import fill_catalog
from tests.webadmin.admin.timeline_rows import fill_timeline
from tests.webadmin.admin.tsdb_rows import fill_tsdb
from tests.webadmin.service import Service
from webadmin.adminkit import formatting as show
from webadmin.base.access.models import WorkerCredential
from webadmin.base.access.services import issue_worker_credential
from webadmin.base.error_answers import RETRY_SECONDS
from webadmin.console import pages
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.operator_queries import index_totals
from webadmin.lanes.tables.models import Chunk
from webadmin.lanes.tsdb.models import BucketTenant
from webadmin.progress.health import COUNTING_LATE_MS
from webadmin.progress.services.count_log import count_log
from webadmin.schedule.models import Command


def words(text: str) -> str:
    return re.sub(r"[\s\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}]+", " ", re.sub(r"<[^>]+>", " ", text))


def test_an_empty_installation_shows_first_steps(operator: Client) -> None:
    text = words(operator.get("/admin/").content.decode())
    assert "Nothing to do: there is no data yet." in text
    assert "run manage.py import_blocks on a bucket" in text
    assert "issue a credential and start a node" in text


def test_the_front_page_shows_trouble_levels_queues_jobs_workers_and_commands(operator: Client) -> None:
    rows.fill()
    text = words(operator.get("/admin/").content.decode())
    assert "3 jobs parked; keep 22 blocks until an operator decides." in text
    assert "1 block parked: not compacted, still read by queries." in text
    assert "The lease of 1 job is over" in text
    assert "0, segments 10 " in text
    assert "6 owned, 2 quarantined, 1 parked, 1 queued" in text
    assert "3 removed objects awaiting deletion." in text
    assert "10 of 10 blocks: full" in text
    assert re.search(r"node-a polling \d+ s ago 2", text)
    assert "node-silent silent" in text
    assert f"#{Command.objects.latest('index').index}" in text


def test_the_front_page_counts_credentials_that_are_about_to_expire(operator: Client) -> None:
    now = timezone.now()
    for name, days in (("ended", -1), ("soon", 13), ("later", 15), ("never", None)):
        expires_at = None if days is None else now + timedelta(days=days)
        issue_worker_credential(name=name, actor="test", expires_at=expires_at)
    assert "2 credentials expire within 14 days, or did already." in words(operator.get("/admin/").content.decode())
    WorkerCredential.objects.filter(name="ended").update(revoked_at=now)
    assert "1 credential expires within 14 days, or did already." in words(operator.get("/admin/").content.decode())


def test_the_front_page_shows_the_state_of_tables_and_what_needs_an_operator(operator: Client) -> None:
    fill_timeline()
    page = operator.get("/admin/").content.decode()
    text = words(page)
    assert "there is no data" not in text
    assert "1 table with an outdated manifest: it cannot be written." in text
    assert "1 chunk of tables quarantined after failures, until released." in text
    assert "1 file of tables quarantined as unreadable, with the reason." in text
    assert re.search(
        r"acme/orders Timeline needs attention 1 running, 1 waiting, 2 blocked 7 chunks 1 chunk, 1 file [\d.]+ GiB "
        r"never at this rate behind by 2 ",
        text,
    )
    links = re.findall(r'lt-notice-\w+">\s*<span>[^<]*<a class="lt-link" href="([^"]+)"', page)
    assert show.list_address(Chunk, state="quarantined") in links
    assert all(operator.get(link).status_code == 200 for link in links)


def test_the_front_page_shows_the_progress_and_failures_of_buckets(operator: Client) -> None:
    fill_tsdb()
    page = operator.get("/admin/").content.decode()
    text = words(page)
    assert "there is no data" not in text
    assert "3 writes to buckets refused: results are not seen yet; tried again." in text
    assert "1 block of buckets quarantined as unreadable, with the place." in text
    assert "1 tenant of buckets not planned, with the reason." in text
    assert re.search(r"metrics refuses writes \d+ s ago 2 12 5 0 running, 1 waiting, 1 parked 1 3 ", text)
    assert re.search(r"away no answer . 0 0 0 0 running", text)
    links = re.findall(r'lt-notice-\w+">\s*<span>[^<]*<a class="lt-link" href="([^"]+)"', page)
    assert all(operator.get(link).status_code == 200 for link in links)
    rows_of = {row.name: f"/admin/tsdb/buckettenant/{row.id}/change/" for row in BucketTenant.objects.all()}
    for state, shown in (("refused", "refused"), ("compacting", "acme"), ("caught-up", "")):
        page = operator.get(f"/admin/tsdb/buckettenant/?state={state}").content.decode()
        assert [name for name, address in rows_of.items() if address in page] == [shown][: len(shown)]
    assert show.list_address(BucketTenant, state="refused") in links


def test_the_page_of_a_tenant_shows_its_data_in_every_lane(operator: Client) -> None:
    fill_timeline()
    fill_tsdb()
    fill_catalog()
    block = rows.make_block(tenant="acme", level=1)
    pages_of = {
        name: words(
            operator.get(reverse("admin:access_tenant_change", args=[rows.make_tenant(name).pk])).content.decode()
        )
        for name in ("acme", "nobody")
    }
    for shown in (block.ulid, "Compactions to catch up", "metrics", "acme/orders", "acme/lake", "All live blocks"):
        assert shown in pages_of["acme"]
        assert shown not in pages_of["nobody"] or shown == "All live blocks"


def test_the_front_page_tells_that_beat_or_control_is_dead(operator: Client, service: Service) -> None:
    dead = "Beat or control does not run, so nothing is planned or cleaned up: progress was "
    assert f"{dead}never counted." in words(operator.get("/admin/").content.decode())
    count_log()
    assert dead not in words(operator.get("/admin/").content.decode())
    service.clock.advance(COUNTING_LATE_MS / 1000 + 60)
    assert f"{dead}last counted 4 min" in words(operator.get("/admin/").content.decode())


def test_workers_are_judged_by_the_databases_clock(operator: Client, service: Service) -> None:
    """The clock of the test's database is weeks from that of this process."""
    service.worker("node-7").poll()
    service.clock.advance(5)
    for address in ("/admin/", "/admin/schedule/worker/"):
        assert re.search(r"node-7 polling 5 s ago", words(operator.get(address).content.decode())), address
    service.clock.advance(3600)
    assert re.search(r"node-7 silent 60 min ago|node-7 silent 1 h", words(operator.get("/admin/").content.decode()))


@pytest.mark.parametrize("error", [OperationalError("gone"), InterfaceError("closed")])
def test_without_the_database_a_page_says_so(
    operator: Client, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    operator.raise_request_exception = False
    monkeypatch.setattr(pages, "schedule_overview", fail)
    answer = operator.get("/admin/")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, str(RETRY_SECONDS))
    assert "The database does not answer" in answer.content.decode()


def test_an_error_of_ours_is_no_outage_of_the_database(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    operator.raise_request_exception = False
    monkeypatch.setattr(pages, "schedule_overview", None)
    assert operator.get("/admin/").status_code == 500


def test_sums_agree_with_the_tables_through_a_whole_compaction(operator: Client, service: Service) -> None:
    service.add_segments(25)
    worker = service.worker()
    job = worker.take()[0].job
    worker.poll(worker.success(job), capacity=0)
    totals = index_totals()
    for total in totals.live:
        blocks = Block.objects.filter(level=total.level, state=total.state)
        assert total.block_count == blocks.count()
        assert total.byte_count == sum(blocks.values_list("size_bytes", flat=True))
    assert totals.awaiting_deletion == 20
    text = words(operator.get("/admin/").content.decode())
    assert "Live objects 6 " in text
    assert "2 queues filling" in text


def test_a_refresh_brings_the_content_alone(operator: Client) -> None:
    rows.fill()
    whole = operator.get("/admin/").content.decode()
    part = operator.get("/admin/", headers={"HX-Request": "true"}).content.decode()
    assert "<html" in whole
    assert "<html" not in part
    assert part.strip().startswith('<div id="overview"')
    assert len(part) < len(whole) / 2


def test_slow_sums_are_cached_and_show_their_age(operator: Client) -> None:
    rows.make_block("final", tenant="acme", level=3)
    assert "Live objects 1 " in words(operator.get("/admin/").content.decode())
    rows.make_block("final", tenant="acme", level=3)
    assert "Live objects 1 " in words(operator.get("/admin/").content.decode()), "counted again within the same second"


def test_a_trouble_notice_leads_to_the_list_of_what_it_counts(operator: Client) -> None:
    filled = rows.fill()
    text = operator.get("/admin/").content.decode()
    links = re.findall(r'lt-notice-\w+">\s*<span>[^<]*<a class="lt-link" href="([^"]+)"', text)
    assert len(links) == 10
    assert all(operator.get(link).status_code == 200 for link in links)
    parked = [link for link in links if link == reverse("admin:progress_parkedjob_changelist")]
    assert filled.failed.name in operator.get(parked[0]).content.decode()
