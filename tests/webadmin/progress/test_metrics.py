"""The metrics a service shows: all that are listed, nothing else, with the numbers of the tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from tests.block_factory import block_meta, segment_ids
from tests.webadmin.probes import probe
from tests.webadmin.service import REASON, Service
from webadmin.base.access.services import issue_worker_credential
from webadmin.base.lane_manifest import service_metrics
from webadmin.progress.services import count_log


def scrape() -> dict[tuple[str, tuple[str, ...]], float]:
    answer = probe("/metrics")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.content.decode())
        for sample in family.samples
    }


def test_what_is_shown_is_what_is_listed(service: Service) -> None:
    text = probe("/metrics").content.decode()
    shown = {family.name: family for family in text_string_to_metric_families(text)}
    for metric in service_metrics():
        family = shown.pop(metric.name.removesuffix("_total"))
        assert family.type == metric.kind
        assert family.documentation == metric.meaning
        for sample in family.samples:
            assert sorted(sample.labels) == sorted(metric.labels)
    assert not shown


def test_repeated_blocks_and_the_time_to_compaction_are_counted(service: Service) -> None:
    [meta] = [block_meta(segment_ids(service.clock.now_ms, 1, first=900)[0])]
    service.add(meta)
    service.add(meta)
    service.add(replace(meta, size=meta.size + 1))
    service.add_segments(19)
    worker = service.worker()
    [spec] = worker.take()
    service.clock.advance(7)
    worker.poll(worker.success(spec.job), capacity=0)
    count_log()
    found = scrape()
    assert found["lithify_blocks_repeated_total", ("same",)] == 1
    assert found["lithify_blocks_repeated_total", ("differing",)] == 1
    assert found["lithify_compaction_wait_seconds_total", ("profiles", "0")] in (6, 7)


def test_the_numbers_are_those_of_the_schedule(service: Service) -> None:
    service.add_segments(45)
    worker = service.worker()
    first, second = worker.take(2)
    service.clock.advance(2)
    worker.poll(worker.success(first.job), worker.released(second.job, REASON), capacity=3)
    count_log()
    found = scrape()
    level = ("profiles", "0")
    assert found["lithify_jobs_completed_total", level] == 1
    assert found["lithify_jobs_added_total", level] == 2
    assert found["lithify_runs_ended_total", (*level, "failed")] == 1
    assert found["lithify_blocks_merged_total", level] == 20
    assert found["lithify_queue_blocks", ("0",)] == 5
    assert found["lithify_queue_blocks", ("1",)] == 1
    assert found["lithify_queues_ready", ("0",)] == 0
    assert found["lithify_jobs", ("0", "waiting")] == 1
    assert found["lithify_backlog_blocks", ()] == 26
    assert found["lithify_backlog_work_seconds", ()] > 0
    assert found["lithify_tenant_backlog_blocks", ("0", "")] == 25
    assert found["lithify_tenant_backlog_blocks", ("1", "acme")] == 1
    assert found["lithify_tombstones", ("waiting",)] == 20
    assert found["lithify_capacity_offered", ()] == 3
    assert found["lithify_healthy", ()] == 1


def test_credentials_that_are_about_to_expire_are_counted(db: None) -> None:
    for name, days in (("ended", -1), ("soon", 13), ("later", 15)):
        expires_at = timezone.now() + timedelta(days=days)
        issue_worker_credential(name=name, actor="test", expires_at=expires_at)
    assert scrape()["lithify_credentials_expiring", ()] == 2


def test_an_empty_installation_can_be_scraped(db: None) -> None:
    found = scrape()
    assert found["lithify_backlog_blocks", ()] == 0
    assert ("lithify_last_completion_age_seconds", ()) not in found
    assert found["lithify_healthy", ()] == 0, "nobody counts yet"


def test_a_scrape_costs_the_same_with_a_larger_backlog(service: Service) -> None:
    service.add_segments(1)
    with CaptureQueriesContext(connection) as few:
        scrape()
    for shard in range(20):
        service.add_segments(1, shard=shard)
    with CaptureQueriesContext(connection) as many:
        scrape()
    assert len(many) == len(few)


def test_metrics_need_the_token_where_one_is_set(db: None, settings: object) -> None:
    settings.METRICS_TOKEN = "s3cret"
    assert Client().get("/metrics").status_code == 401
    assert Client().get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert Client().get("/metrics", headers={"Authorization": "Bearer s3cret"}).status_code == 200


@pytest.mark.parametrize("metric", service_metrics(), ids=lambda metric: metric.name)
def test_names_keep_the_rules(metric: object) -> None:
    assert metric.name.startswith("lithify_")
    assert (metric.kind == "counter") == metric.name.endswith("_total")
