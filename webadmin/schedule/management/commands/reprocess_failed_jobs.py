"""``manage.py reprocess_failed_jobs``: requeue jobs that were parked because of failures."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import IO, TYPE_CHECKING, Any, cast

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.table import Table

from engine.core.errors import LithifyError
from webadmin.base.actions.command import add_options, option_values, run_action
from webadmin.schedule.actions import REQUEUE
from webadmin.schedule.models import Job
from webadmin.schedule.register import LastErrorColumns, count_by_error_class, parked_jobs
from webadmin.schedule.services.operation import OperationOutcome

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

TABLE_ROWS_MAX = 50


class Command(BaseCommand):
    help = "Requeue jobs that failed too often: all, or those that the options fit. Exit code 1 if some were left."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_options(parser, (*REQUEUE.targets, *REQUEUE.fields), positional=("jobs",))
        parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object instead of a table")

    def handle(self, *args: Any, **options: Any) -> None:
        values = option_values(REQUEUE.targets, options)
        try:
            found = {job.name: job for job in parked_jobs(values["filter"])}
        except LithifyError as error:
            raise CommandError(f"{error}: see --help") from error
        outcome = run_action(REQUEUE, options, values)
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
        told = ", ".join(f"{count} {name}" for name, count in errors.items())
        console.print(f"{len(outcome.changed)} {verb}{f' ({told})' if told else ''}, {len(outcome.left)} left")
        for note in outcome.notes:
            console.print(note)
