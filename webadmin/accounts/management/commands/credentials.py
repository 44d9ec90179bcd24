"""``manage.py credentials``: list, rotate, expire and revoke credentials of workers, senders and API clients."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from webadmin.accounts.credential_actions import EXPIRE, REVOKE, ROTATE
from webadmin.base.access.credential_changes import CredentialOutcome, describe_credential
from webadmin.base.access.models import WorkerCredential
from webadmin.base.access.queries import credential_warning
from webadmin.base.actions.command import add_options, run_action

ACTIONS = {"rotate": ROTATE, "expire": EXPIRE, "revoke": REVOKE}


class Command(BaseCommand):
    """Credentials in use, and the end of each."""

    help = "List, rotate, expire and revoke credentials; create_worker_credential and catalog access-key make them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add one action; all but ``list`` name a credential and may be a dry run."""
        actions = parser.add_subparsers(dest="action", required=True)
        listing = actions.add_parser("list", help="the credentials in use, with when each expires and was used last")
        listing.add_argument("--all", action="store_true", dest="with_revoked", help="revoked ones too")
        listing.add_argument("--json", action="store_true", dest="as_json", help="JSON instead of lines")
        for name, action in ACTIONS.items():
            part = actions.add_parser(name, help=action.label, description=action.about)
            add_options(part, (*action.targets, *action.fields), positional=("name",))
            part.add_argument("--json", action="store_true", dest="as_json", help="JSON instead of lines")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the action."""
        if options["action"] == "list":
            self._list(options)
            return
        self._show(run_action(ACTIONS[options["action"]], options), as_json=options["as_json"])

    def _list(self, options: Mapping[str, Any]) -> None:
        rows = WorkerCredential.objects.order_by("name", "id")
        shown = rows if options["with_revoked"] else rows.filter(revoked_at=None)
        now = timezone.now()
        if options["as_json"]:
            credentials = [describe_credential(row) | {"warning": credential_warning(row, now)} for row in shown]
            self.stdout.write(json.dumps({"credentials": credentials}))
            return
        for row in shown:
            expiry = f"expires {row.expires_at:%Y-%m-%d %H:%M} UTC" if row.expires_at else "no expiry"
            used = f"used {row.last_used_at:%Y-%m-%d %H:%M} UTC" if row.last_used_at else "never used"
            warning = credential_warning(row, now)
            parts = [row.name, f"lw_{row.key_id}", ",".join(row.scopes), expiry, used, *([warning] if warning else [])]
            self.stdout.write("  ".join(parts))

    def _show(self, outcome: CredentialOutcome, *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(outcome.to_json()))
            return
        for note in outcome.notes:
            self.stderr.write(note)
        data = outcome.to_json()
        secrets = {name: data[name] for name in ("secret", "access_key_id", "secret_access_key") if name in data}
        for name, value in secrets.items():
            self.stdout.write(f"{name}: {value}")
        if not secrets:
            verb = "would be changed" if outcome.is_dry_run else "changed"
            self.stdout.write("\n".join(f"{each['name']}: {verb} ({outcome.action})" for each in outcome.credentials))
