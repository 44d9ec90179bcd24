"""``manage.py delete_data``: hides a tenant's data at once and has it removed from the objects by a deadline."""

from __future__ import annotations

import getpass
import json
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from engine.core.errors import LithifyError
from engine.schedule.progress import count_text
from webadmin.lanes.profiles.services.delete_requests import (
    DEADLINE_HOURS,
    DeleteOrder,
    request_deletion,
)
from webadmin.schedule.services.operation import Order


class Command(BaseCommand):
    help = "Delete a tenant's data: of a service, of series, of a time. It cannot be taken back: try --dry-run first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant")
        parser.add_argument("--service", default="", help="only this service")
        parser.add_argument("--selector", default="", help="""only series that match, e.g. '{region="eu"}'""")
        parser.add_argument("--from", dest="from_time", type=_time_ms, metavar="TIME", help="ISO 8601; included")
        parser.add_argument("--until", dest="until_time", type=_time_ms, metavar="TIME", help="ISO 8601; not included")
        parser.add_argument(
            "--deadline-hours", type=int, default=DEADLINE_HOURS, help="until the objects are rewritten"
        )
        parser.add_argument("--why", default="", help="stands in the audit log")
        parser.add_argument("--dry-run", action="store_true", help="only show how much would be hidden")
        parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object instead of a sentence")

    def handle(self, *args: Any, **options: Any) -> None:
        wanted = DeleteOrder(
            tenant=options["tenant"],
            service=options["service"],
            selector=options["selector"],
            from_ms=options["from_time"],
            until_ms=options["until_time"],
            deadline_hours=options["deadline_hours"],
        )
        order = Order(actor=f"command:{getpass.getuser()}", why=options["why"], is_dry_run=options["dry_run"])
        try:
            outcome = request_deletion(wanted, order=order)
        except LithifyError as error:
            raise CommandError(str(error)) from error
        if options["as_json"]:
            self.stdout.write(json.dumps(outcome.to_json()))
            return
        where = f"{count_text(outcome.datasets, 'dataset')} in {count_text(outcome.blocks, 'block')}"
        size = f"{where} ({count_text(outcome.bytes, 'byte')})"
        if outcome.is_dry_run:
            self.stdout.write(f"{size} would be hidden in whole or in part")
            for text in outcome.kept:
                self.stdout.write(text)
        else:
            self.stdout.write(f"request {outcome.command_index}: {size} hidden in whole or in part")


def _time_ms(text: str) -> int:
    """Return a date and time as unix milliseconds; the default zone is UTC."""
    time = datetime.fromisoformat(text)
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
