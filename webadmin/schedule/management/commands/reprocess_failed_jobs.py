"""``manage.py reprocess_failed_jobs``: requeue jobs that were parked because of failures."""

from __future__ import annotations

import getpass
import json
from argparse import ArgumentParser
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, cast

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.table import Table

from engine.core.errors import LithifyError
from engine.schedule.model import ParkedKind
from webadmin.schedule.models import Job
from webadmin.schedule.register import JobFilter, LastErrorColumns, count_by_error_class, parked_jobs
from webadmin.schedule.services.operation import OperationOutcome, Order
from webadmin.schedule.services.requeue_jobs import requeue

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

TABLE_ROWS_MAX = 50


class Command(BaseCommand):
    help = "Requeue jobs that failed too often: all, or those that the options fit. Exit code 1 if some were left."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("jobs", nargs="*", help="names of jobs")
        parser.add_argument("--all", action="store_true", dest="everything", help="every evicted job")
        parser.add_argument("--error-class", help="only jobs whose last error was of this class, e.g. ChecksumMismatch")
        parser.add_argument("--tenant", help='only jobs of this tenant ("" for segments)')
        parser.add_argument("--lane", help="only jobs of this lane")
        parser.add_argument("--level", type=int, help="only jobs of this level")
        parser.add_argument("--deferred", action="store_true", help="jobs that were set aside instead of evicted ones")
        parser.add_argument(
            "--newer-build-only", action="store_true", help="only on builds newer than all on which they failed"
        )
        parser.add_argument("--keep-failures", action="store_true", help="one more run instead of a fresh start")
        parser.add_argument("--why", default="reprocess_failed_jobs", help="stands in the audit log")
        parser.add_argument("--dry-run", action="store_true", help="only show what would be requeued")
        parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object instead of a table")

    def handle(self, *args: Any, **options: Any) -> None:
        wanted = JobFilter(
            names=tuple(options["jobs"]),
            everything=options["everything"],
            error_class=options["error_class"],
            tenant=options["tenant"],
            lane=options["lane"],
            level=options["level"],
            kind=ParkedKind.DEFERRED if options["deferred"] else None,
        )
        _check(wanted)
        if not (options["deferred"] or wanted.names):
            wanted = replace(wanted, kind=ParkedKind.EVICTED)
        order = Order(actor=f"command:{getpass.getuser()}", why=options["why"], is_dry_run=options["dry_run"])
        try:
            found = {job.name: job for job in parked_jobs(wanted)}
            outcome = requeue(
                wanted,
                order=order,
                newer_build_only=options["newer_build_only"],
                keep_failures=options["keep_failures"],
            )
        except LithifyError as error:
            raise CommandError(str(error)) from error
        self._show(outcome, found, as_json=options["as_json"])
        if outcome.left:
            raise SystemExit(1)

    def _show(
        self, outcome: OperationOutcome, found: dict[str, WithAnnotations[Job, LastErrorColumns]], *, as_json: bool
    ) -> None:
        errors = count_by_error_class(found[name] for name in outcome.changed if name in found)
        if as_json:
            self.stdout.write(json.dumps(outcome.to_json() | {"error_classes": errors}))
            return
        verb = "would be requeued" if outcome.is_dry_run else "requeued"
        table = Table("job", "level", "tenant", "blocks", "failures", "last error", "what")
        rows = [(name, verb) for name in outcome.changed] + list(outcome.left)
        for name, what in rows[:TABLE_ROWS_MAX]:
            job = found.get(name)
            about = (
                (job.level, job.tenant or "segments", job.source_count, job.failures, job.last_error_class)
                if job
                else ""
            )
            table.add_row(name, *(str(part) for part in about or ("",) * 5), what)
        console = Console(file=cast("IO[str]", self.stdout), width=200, soft_wrap=True)
        if rows:
            console.print(table)
        if len(rows) > TABLE_ROWS_MAX:
            console.print(f"and {len(rows) - TABLE_ROWS_MAX} more (--json shows all)")
        counts = ", ".join(f"{count} {name}" for name, count in errors.items())
        console.print(f"{len(outcome.changed)} {verb}{f' ({counts})' if counts else ''}, {len(outcome.left)} left")
        for note in outcome.notes:
            console.print(note)


def _check(wanted: JobFilter) -> None:
    try:
        wanted.check()
    except LithifyError as error:
        raise CommandError(f"{error}: see --help") from error
