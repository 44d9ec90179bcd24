"""Metrics of tables for ``/metrics``: a fixed number of queries, limited to the tables with the largest backlog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from django.db.models import Count

from webadmin.base.database import dialect
from webadmin.lanes.tables.churn import AGAIN_DAYS, AGAIN_MIN, DAY_MS
from webadmin.lanes.tables.models import DataSource
from webadmin.lanes.tables.status import COMMITTED, TableStatus, statuses
from webadmin.lanes.tables.task_models import TaskChunk

Sample = tuple[tuple[str, ...], float]


def table_samples(tables_max: int) -> Iterator[tuple[str, list[Sample]]]:
    """Yield the name of each metric with its samples, for at most ``tables_max`` tables."""
    sources = list(DataSource.objects.order_by("tenant", "name"))
    found = statuses(sources)
    shown = sorted(sources, key=lambda source: -found[source.id].to_rewrite)[:tables_max]
    tables = [((source.tenant, source.name), found[source.id]) for source in shown]
    churning = _churning()
    yield "lithify_tables_to_rewrite_bytes", [(key, table.to_rewrite) for key, table in tables]
    yield "lithify_tables_chunks", [_of_state(key, state, n) for key, table in tables for state, n in _chunks(table)]
    yield "lithify_tables_tasks", [_of_state(key, state, n) for key, table in tables for state, n in _tasks(table)]
    yield "lithify_tables_bad_files", [(key, table.bad_files) for key, table in tables]
    yield "lithify_tables_unpublished", [(key, table.unpublished) for key, table in tables]
    yield "lithify_tables_churning_chunks", [((one.tenant, one.name), churning[one.id]) for one in shown]
    refused = [((one.tenant, one.name), bool(one.refusal or one.publish_error)) for one in shown]
    yield "lithify_tables_refused", [(key, float(is_refused)) for key, is_refused in refused]


def _of_state(key: tuple[str, str], state: str, count: int) -> Sample:
    return (*key, state), count


def _chunks(table: TableStatus) -> list[tuple[str, int]]:
    return [
        ("unstable", table.unstable),
        ("deferred", table.deferred),
        ("quarantined", table.quarantined),
        ("stuck", table.stuck),
    ]


def _tasks(table: TableStatus) -> list[tuple[str, int]]:
    return [
        ("running", table.running),
        ("waiting", table.waiting),
        ("blocked", table.blocked),
        ("parked", table.parked),
    ]


def _churning() -> Counter[int]:
    """Return the number of repeatedly rewritten chunks by table."""
    since_ms = dialect.clock_ms() - AGAIN_DAYS * DAY_MS
    commits = TaskChunk.objects.filter(task__finished_at_ms__gte=since_ms, outcome__in=COMMITTED).order_by()
    counts = commits.values("source_id", "start_ms").annotate(count=Count("id")).filter(count__gte=AGAIN_MIN)
    return Counter(row["source_id"] for row in counts)
