"""One round of the control tasks of tables: plan, settle failures, publish, delete.

An error in one table does not stop the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.core.errors import LithifyError
from engine.storage import ObjectStore
from webadmin.base.database import dialect
from webadmin.lanes.tables.models import DataSource
from webadmin.lanes.tables.services.clean_table import CleanReport, clean_table
from webadmin.lanes.tables.services.publish_manifest import publish_manifest, tables_behind
from webadmin.lanes.tables.services.run_cycle import due_tables, run_source_cycle
from webadmin.lanes.tables.services.settle_failures import FailureReport, failing_tasks, settle_failure

log = logging.getLogger(__name__)

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
    outcome = PlanRound()
    for source in due_tables(dialect.clock_ms(), count):
        outcome.tables += 1
        try:
            report = run_source_cycle(source)
        except LithifyError as error:
            outcome.refused[str(source)] = str(error)
            log.warning("table_not_planned table=%s reason=%s", source, error)
            continue
        outcome.analysed += report.analysed
        outcome.created += len(report.created)
        outcome.started += report.started
        outcome.shed += report.shed
        if report.refusal:
            outcome.refused[str(source)] = report.refusal
    return outcome


def settle_failures(stores: OpenStore) -> FailureReport:
    """Examine every task whose job fails."""
    report = FailureReport()
    for task in failing_tasks():
        try:
            settle_failure(task, stores(task.source.url), report)
        except LithifyError as error:
            log.warning("failure_not_settled task=%s reason=%s", task, error)
    return report


def publish_tables(stores: OpenStore) -> PublishRound:
    """Publish the manifest of every table that is behind."""
    outcome = PublishRound()
    for source in tables_behind():
        try:
            done = publish_manifest(source, stores(source.url))
        except LithifyError as error:
            outcome.failed[str(source)] = str(error)
            log.warning("manifest_not_published table=%s reason=%s", source, error)
            continue
        if done.is_written:
            outcome.published[str(source)] = done.sequence
    return outcome


def clean_tables(stores: OpenStore) -> CleanReport:
    """Delete what is due in every table."""
    outcome = CleanReport()
    for source in DataSource.objects.order_by("id"):
        try:
            report = clean_table(source, stores(source.url))
        except LithifyError as error:
            outcome.failed += 1
            log.warning("table_not_cleaned table=%s reason=%s", source, error)
            continue
        outcome.files += report.files
        outcome.outputs += report.outputs
        outcome.manifests += report.manifests
        outcome.failed += report.failed
    return outcome
