"""``manage.py plan --dry-run``: what a poll with a given free capacity would plan, assign and park now."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import IO, Any, cast

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.table import Table

from engine.protocol.wire import CAPACITY_MAX
from engine.schedule.model import ChangeSet
from webadmin.adminkit.formatting import size_text
from webadmin.schedule.polls.dry_run import WORKER, dry_poll


class Command(BaseCommand):
    """Show a plan without making it."""

    help = "Show what a poll with some free capacity would do now; nothing is changed."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the capacity, and the worker."""
        parser.add_argument("--dry-run", action="store_true", help="required: jobs are planned by polls alone")
        parser.add_argument("--capacity", type=int, default=8, help="free job slots of the imagined poll")
        parser.add_argument("--worker", default=WORKER, help="as this worker: jobs may be pinned")
        parser.add_argument("--build", default="", help="as this build: jobs may be kept from it")
        parser.add_argument("--json", action="store_true", help="the change set as the command log would have it")

    def handle(self, *args: Any, capacity: int, worker: str, build: str, **options: Any) -> None:
        """Print the plan."""
        if not options["dry_run"]:
            raise CommandError("jobs are planned when a worker polls; to see what would be planned, say --dry-run")
        if not 0 <= capacity <= CAPACITY_MAX:
            raise CommandError(f"--capacity {capacity}: 0 to {CAPACITY_MAX}")
        changes = dry_poll(capacity=capacity, worker=worker, build=build)
        if options["json"]:
            self.stdout.write(json.dumps(changes.to_json(), indent=2))
            return
        rows = list(_rows(changes))
        if not rows:
            self.stdout.write("A poll would change nothing now; manage.py progress shows what waits.")
            return
        table = Table(title=f"What a poll with capacity {capacity} would do")
        for header in ("does", "job", "tenant", "shard", "level", "blocks", "bytes"):
            table.add_column(header)
        for row in rows:
            table.add_row(*row)
        Console(file=cast("IO[str]", self.stdout), width=None if self.stdout.isatty() else 140).print(table)


def _rows(changes: ChangeSet) -> Iterator[tuple[str, ...]]:
    for returned in changes.returned:
        does = "parks" if returned.parked_reason else "returns"
        yield (does, returned.job.name, returned.job.tenant or "segments", "", str(returned.job.level), "", "")
    for assigned in changes.assigned:
        job = assigned.job
        does = "takes over" if job.token else "assigns"
        yield (does, job.name, job.tenant or "segments", "", str(job.level), "", size_text(job.size_bytes))
    for created in changes.created:
        plan = created.plan
        yield (
            "plans",
            plan.name,
            plan.tenant or "segments",
            str(plan.shard),
            str(plan.level),
            str(plan.source_count()),
            size_text(plan.size_bytes()),
        )
