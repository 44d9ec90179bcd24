"""One round of the control tasks of tables: plan, settle failures, publish, delete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.storage import ObjectStore
from webadmin.base.database import dialect
from webadmin.lanes.tables.models import DataSource
from webadmin.lanes.tables.services.clean_table import CleanReport, clean_table
from webadmin.lanes.tables.services.publish_manifest import publish_manifest, tables_behind
from webadmin.lanes.tables.services.run_cycle import due_tables, run_source_cycle
from webadmin.lanes.tables.services.settle_failures import FailureReport, failing_tasks, settle_failure
from webadmin.schedule.rounds import run_round

OpenStore = Callable[[str], ObjectStore]
TABLES_PER_ROUND = 200


@dataclass(slots=True)
class PlanRound:
    """Result of controller cycles, and the tables that were refused or failed, with reasons."""

    tables: int = 0
    analysed: int = 0
    created: int = 0
    started: int = 0
    shed: int = 0
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class PublishRound:
    """Tables whose manifest was written, and those that failed, with reasons."""

    published: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def plan_tables(*, count: int = TABLES_PER_ROUND) -> PlanRound:
    """Run a controller cycle for every table that is due, at most ``count``."""
    due = due_tables(dialect.clock_ms(), count)
    done = run_round("table_not_planned", due, run_source_cycle)
    return PlanRound(
        tables=len(due),
        analysed=done.total("analysed"),
        created=sum(len(report.created) for report in done.reports),
        started=done.total("started"),
        shed=done.total("shed"),
        refused=done.failed | {name: report.refusal for name, report in done.named if report.refusal},
    )


def settle_failures(stores: OpenStore) -> FailureReport:
    """Examine every task whose job fails."""
    report = FailureReport()
    run_round(
        "failure_not_settled", failing_tasks(), lambda task: settle_failure(task, stores(task.source.url), report)
    )
    return report


def publish_tables(stores: OpenStore) -> PublishRound:
    """Publish the manifest of every table that is behind."""
    done = run_round(
        "manifest_not_published", tables_behind(), lambda source: publish_manifest(source, stores(source.url))
    )
    written = {name: report.sequence for name, report in done.named if report.is_written}
    return PublishRound(published=written, failed=done.failed)


def clean_tables(stores: OpenStore) -> CleanReport:
    """Delete what is due in every table."""
    tables = DataSource.objects.order_by("id")
    done = run_round("table_not_cleaned", tables, lambda source: clean_table(source, stores(source.url)))
    return CleanReport(
        files=done.total("files"),
        outputs=done.total("outputs"),
        manifests=done.total("manifests"),
        failed=done.total("failed") + len(done.failed),
    )
