"""The metrics of the web process at ``/metrics``: sums and counts from the database, the same from every web process.

A scrape costs a fixed number of queries over stored sums and partial indexes, whatever the backlog.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.db.models import Count
from django.utils import timezone
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from engine.core.version import VERSION
from engine.schedule.model import HOLDING_STATES, LIVE_STATES
from webadmin.base.access.queries import expiring_credential_count
from webadmin.base.lane_manifest import service_metrics
from webadmin.ingest.push_counts import push_samples
from webadmin.progress.facts import read_standstill
from webadmin.progress.health import judge
from webadmin.progress.models import FlowTotal
from webadmin.progress.report import progress_report
from webadmin.schedule.command_log import read_time
from webadmin.schedule.lanes import Sample, lanes
from webadmin.schedule.models import Job, LogHead

TENANTS_MAX = 200
RUNS_PREFIX = "runs_"


def metrics_text() -> bytes:
    """Return all metrics of the service in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_ServiceCollector())
    return generate_latest(registry)


class _ServiceCollector:
    """Reads all metrics once per scrape."""

    def collect(self) -> Iterator[Metric]:
        samples = dict(_samples())
        for metric in service_metrics():
            family_type = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = family_type(metric.name.removesuffix("_total"), metric.meaning, labels=metric.labels)
            for labels, value in samples[metric.name]:
                family.add_metric(labels, value)
            yield family


def _samples() -> Iterator[tuple[str, list[Sample]]]:
    yield from _progress()
    yield from _backlog()
    yield from _jobs()
    yield from _totals()
    yield from push_samples(TENANTS_MAX)
    for lane in lanes():
        yield from lane.samples(TENANTS_MAX)
    yield "lithify_credentials_expiring", [((), expiring_credential_count(timezone.now()))]
    time, head = read_time(), LogHead.objects.get()
    yield "lithify_command_index", [((), head.last_index)]
    yield "lithify_command_time_lag_seconds", [((), max(0, time.wall_ms - time.now_ms) / 1000)]
    yield "lithify_build_info", [((VERSION,), 1)]


def _progress() -> Iterator[tuple[str, list[Sample]]]:
    facts = read_standstill()
    health = judge(facts, stalled_after_seconds=settings.STALLED_AFTER_SECONDS)
    yield "lithify_healthy", [((), health.is_healthy)]
    yield "lithify_merging_broken", [((), facts.is_merging_broken)]
    yield "lithify_quarantine_stopped", [((), bool(facts.isolation_stop))]
    yield "lithify_stalled_seconds", [((), (facts.stalled_ms or 0) / 1000)]
    yield "lithify_last_completion_age_seconds", _known(facts.completed_ms_ago)
    yield "lithify_counting_age_seconds", _known(facts.counted_ms_ago)
    yield "lithify_jobs_expired", [((), facts.expired_jobs)]
    yield "lithify_jobs_limit", [((), facts.queue_max)]
    yield "lithify_jobs_live", [((), facts.live_jobs)]
    silent = facts.known_workers - facts.polling_workers
    yield "lithify_workers", [(("polling",), facts.polling_workers), (("silent",), silent)]
    yield "lithify_capacity_offered", [((), facts.offered_capacity)]
    yield "lithify_paused_scopes", [((), len(facts.paused))]


def _known(ms: int | None) -> list[Sample]:
    return [] if ms is None else [((), ms / 1000)]


def _backlog() -> Iterator[tuple[str, list[Sample]]]:
    report = progress_report(with_lanes=False)
    backlog = report.everything.backlog
    yield "lithify_backlog_blocks", [((), backlog.blocks)]
    yield "lithify_backlog_bytes", [((), backlog.bytes)]
    yield "lithify_backlog_due_blocks", [((), backlog.due_blocks)]
    yield "lithify_backlog_work_seconds", [((), report.work_seconds)]
    rows = [row for row in report.tenants if row.backlog.blocks][:TENANTS_MAX]
    yield "lithify_tenant_backlog_blocks", [((row.tenant or "", str(row.level)), row.backlog.blocks) for row in rows]


def _jobs() -> Iterator[tuple[str, list[Sample]]]:
    held = Job.objects.filter(state__in=HOLDING_STATES).order_by()
    counts = held.values("level", "state").annotate(count=Count("id")).order_by("level", "state")
    yield "lithify_jobs", [((str(row["level"]), row["state"]), row["count"]) for row in counts]
    failing = held.filter(state__in=LIVE_STATES, failures__gt=0).values("level").annotate(count=Count("id"))
    yield "lithify_jobs_failing", [((str(row["level"]),), row["count"]) for row in failing.order_by("level")]


def _totals() -> Iterator[tuple[str, list[Sample]]]:
    rows = list(FlowTotal.objects.order_by("lane", "level", "name"))
    counted = {metric.name for metric in service_metrics() if metric.labels == ("lane", "level")}
    for name in sorted(counted):
        what = name.removeprefix("lithify_").removesuffix("_total")
        yield name, [((row.lane, str(row.level)), row.count) for row in rows if row.name == what]
    ended = [row for row in rows if row.name.startswith(RUNS_PREFIX)]
    yield (
        "lithify_runs_ended_total",
        [((row.lane, str(row.level), row.name.removeprefix(RUNS_PREFIX)), row.count) for row in ended],
    )
