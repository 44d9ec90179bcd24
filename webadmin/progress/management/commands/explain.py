"""``manage.py explain NAME``: one sentence on where a block or job is, why, and what would change it."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from webadmin.schedule.errors import NotFound
from webadmin.schedule.explain import NAMES, explain_name


class Command(BaseCommand):
    """Explain one thing."""

    help = "Say in one sentence where a block or job is, why, and what would change it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the name, and the output format."""
        parser.add_argument("name", help=NAMES)
        parser.add_argument("--json", action="store_true", help="as the API answers")

    def handle(self, *args: Any, name: str, **options: Any) -> None:
        """Print the explanation."""
        try:
            found = explain_name(name)
        except NotFound as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps({"explanations": [one.to_json() for one in found]}, indent=2))
            return
        for one in found:
            self.stdout.write(one.sentence)
