"""``manage.py delete_data``: hides a tenant's data at once and has it removed from the objects by a deadline."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from engine.schedule.progress import count_text
from webadmin.base.actions.command import add_options, run_action
from webadmin.lanes.profiles.actions.deletion import REQUEST_DELETION
from webadmin.lanes.profiles.services.delete_requests import DeleteOutcome


class Command(BaseCommand):
    help = "Delete a tenant's data: of a service, of series, of a time. This cannot be undone: try --dry-run first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_options(parser, (*REQUEST_DELETION.targets, *REQUEST_DELETION.fields), positional=("tenant",))
        parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object instead of a sentence")

    def handle(self, *args: Any, **options: Any) -> None:
        outcome: DeleteOutcome = run_action(REQUEST_DELETION, options)
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
