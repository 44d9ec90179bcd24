"""``manage.py settings``: every setting with its value, source and meaning."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict
from itertools import groupby
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from engine.settings.listing import list_settings


class Command(BaseCommand):
    """List the settings of each kind of process, as this environment gives them; secrets are hidden."""

    help = "List every setting with its value, its source (environment or default) and its meaning; no secrets."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the output format."""
        parser.add_argument("--json", action="store_true", help="one JSON document")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the settings; exit with 1 if some are invalid."""
        listed, problems = list_settings()
        if options["json"]:
            self.stdout.write(json.dumps({"settings": [asdict(row) for row in listed], "problems": problems}, indent=2))
        else:
            for process, rows in groupby(listed, key=lambda row: row.process):
                self.stdout.write(f"{process}\n")
                for row in rows:
                    value = row.value or f"({row.default})"
                    self.stdout.write(f"  {row.name} = {value}  [{row.source}]  {row.meaning}")
                self.stdout.write("")
        if problems:
            raise CommandError("\n".join(problems))
