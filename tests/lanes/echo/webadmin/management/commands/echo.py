"""``manage.py echo``: list text files by state, and release those in quarantine."""

from __future__ import annotations

import getpass
import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from tests.lanes.echo.webadmin.models import TextFile
from tests.lanes.echo.webadmin.services import release_quarantined
from webadmin.base.actions.action import ActionContext


class Command(BaseCommand):
    """Status, release."""

    help = "List text files by state, and release those in quarantine."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the subcommands and their arguments."""
        actions = parser.add_subparsers(dest="action", required=True)
        actions.add_parser("status", help="the state of each file")
        actions.add_parser("release", help="release files that were repaired").add_argument("keys", nargs="+")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the subcommand."""
        if options["action"] == "release":
            found = release_quarantined(
                options["keys"], ActionContext(actor=f"command:{getpass.getuser()}", why="repaired")
            )
            self.stdout.write(json.dumps(found))
            return
        rows = TextFile.objects.order_by("tenant", "folder", "position", "id").values_list("key", "state")
        self.stdout.write(json.dumps(dict(rows)))
