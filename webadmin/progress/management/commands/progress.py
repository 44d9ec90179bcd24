"""``manage.py progress``: the backlog of compaction, its rates, and the time until it is cleared."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import IO, Any, cast

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.table import Table

from engine.schedule.progress import count_text, seconds_text
from webadmin.adminkit.formatting import size_text
from webadmin.progress.report import (
    WINDOW_SECONDS,
    WINDOW_SECONDS_MAX,
    LaneRow,
    ProgressReport,
    ProgressRow,
    progress_report,
)


class Command(BaseCommand):
    """Show the progress report."""

    help = "Show backlog, rates and time to clear per tenant and level, per shard and in all."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the window of the rates, and the output format."""
        parser.add_argument("--window", type=int, default=WINDOW_SECONDS, help="seconds over which rates are taken")
        parser.add_argument("--shards", action="store_true", help="also by shard")
        parser.add_argument("--json", action="store_true", help="as the API answers")

    def handle(self, *args: Any, window: int, **options: Any) -> None:
        """Print the report."""
        if not 60 <= window <= WINDOW_SECONDS_MAX:
            raise CommandError(f"--window {window}: 60 to {WINDOW_SECONDS_MAX} seconds")
        report = progress_report(window_seconds=window)
        if options["json"]:
            self.stdout.write(json.dumps(report.to_json(), indent=2))
            return
        console = Console(file=cast("IO[str]", self.stdout), width=None if self.stdout.isatty() else 140)
        console.print(_table("By tenant and level", [*report.tenants, report.everything]))
        if options["shards"]:
            console.print(_table("By shard", report.shards))
        if report.lanes:
            console.print(_lanes(report.lanes))
        console.print(_footnote(report))


def _table(title: str, rows: Sequence[ProgressRow]) -> Table:
    table = Table(title=title)
    for header in ("what", "blocks", "bytes", "due", "jobs", "parked", "in/s", "out/s", "clear"):
        table.add_column(header, justify="left" if header in ("what", "clear") else "right")
    for row in rows:
        backlog, flow = row.backlog, row.flow
        table.add_row(
            place_text(row),
            str(backlog.blocks),
            size_text(backlog.bytes),
            str(backlog.due_blocks),
            str(backlog.jobs),
            str(backlog.parked_jobs),
            f"{flow.per_second(flow.arrived_blocks):.2f}",
            f"{flow.per_second(flow.drained_blocks):.2f}",
            row.clearing.words(),
        )
    return table


def _lanes(rows: Sequence[LaneRow]) -> Table:
    table = Table("lane", "name", "waits", "size", "clear", title="Before the schedule")
    for row in rows:
        waits = count_text(row.waiting.count, row.waiting.unit)
        table.add_row(row.lane, row.waiting.name, waits, size_text(row.waiting.size_bytes), row.words)
    return table


def place_text(row: ProgressRow) -> str:
    """Return the place of a row as text."""
    if row.shard is not None:
        return f"shard {row.shard}"
    if row.level is None:
        return "everything"
    return f"{row.tenant or 'segments'}, level {row.level}"


def _footnote(report: ProgressReport) -> str:
    if report.counted_ms_ago is None:
        return "Nothing was counted yet: start beat and a control worker, then rates appear."
    return (
        f"Rates over {seconds_text(report.window_seconds)}, counted {seconds_text(report.counted_ms_ago / 1000)} ago. "
        f"One job slot would need {seconds_text(report.work_seconds)} for all of it."
    )
