"""``manage.py catalog``: access keys for the catalog's API, compaction, and garbage collection."""

from __future__ import annotations

import getpass
import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from engine.core.errors import LithifyError
from webadmin.base.actions.fields import moment
from webadmin.lanes.catalog import compaction_command
from webadmin.lanes.catalog.api.access_keys import issue_access_key


class Command(BaseCommand):
    """Access keys, compaction and garbage."""

    help = "Make access keys for the SDKs of lakeFS; look at branches, compact them, collect garbage."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the actions and their options."""
        actions = parser.add_subparsers(dest="action", required=True)
        compaction_command.add_actions(actions)
        key = actions.add_parser("access-key", help="make an access key; its secret is shown once")
        key.add_argument("name", help="what the key is for; it stands in commits as their committer")
        key.add_argument("--tenant", required=True, help="whose repositories it is for")
        key.add_argument("--read-only", action="store_true", help="it may not change anything")
        key.add_argument("--expires", type=moment, help="UTC, e.g. 2027-01-31; absent: never")
        key.add_argument("--why", default="", help="stays in the audit log")
        key.add_argument("--json", action="store_true", dest="as_json", help="JSON instead of two lines")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the selected action."""
        try:
            if act := compaction_command.ACTIONS.get(options["action"]):
                act(options, f"command:{getpass.getuser()}", self.stdout)
            else:
                self._access_key(options)
        except LithifyError as error:
            raise CommandError(str(error)) from error

    def _access_key(self, options: dict[str, Any]) -> None:
        issued = issue_access_key(
            name=options["name"],
            tenant=options["tenant"],
            may_write=not options["read_only"],
            expires_at=options["expires"],
            actor=f"command:{getpass.getuser()}",
            why=options["why"],
        )
        told = {"access_key_id": issued.access_key_id, "secret_access_key": issued.secret_access_key}
        if options["as_json"]:
            self.stdout.write(json.dumps(told))
            return
        for name, value in told.items():
            self.stdout.write(f"{name}: {value}")
