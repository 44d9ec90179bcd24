"""``manage.py credentials``: list, rotate, expire and revoke credentials of workers, senders and catalog clients."""

from __future__ import annotations

import getpass
import json
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from engine.core.errors import LithifyError
from webadmin.base.access.credential_changes import (
    OVERLAP_DEFAULT,
    CredentialOutcome,
    describe_credential,
    revoke_credential,
    rotate_credential,
    set_credential_expiry,
)
from webadmin.base.access.models import WorkerCredential
from webadmin.base.access.queries import credential_warning


class Command(BaseCommand):
    """Credentials in use, and the end of each."""

    help = "List, rotate, expire and revoke credentials; create_worker_credential and catalog access-key make them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add one action; all but ``list`` name a credential and may be a dry run."""
        actions = parser.add_subparsers(dest="action", required=True)
        listing = actions.add_parser("list", help="the credentials in use, with when each expires and was used last")
        listing.add_argument("--all", action="store_true", dest="with_revoked", help="revoked ones too")
        listing.add_argument("--json", action="store_true", dest="as_json", help="JSON instead of lines")
        rotate = actions.add_parser("rotate", help="print a new secret; the old one is accepted for a while")
        rotate.add_argument(
            "--overlap-hours",
            type=float,
            default=OVERLAP_DEFAULT / timedelta(hours=1),
            help="how long the old secret is accepted (default %(default)g); 0 revokes it now",
        )
        expire = actions.add_parser("expire", help="set until when a credential is accepted")
        expire.add_argument("--at", type=moment, default=None, help="UTC, 2027-01-31T12:00; absent: never")
        for action in (rotate, expire, actions.add_parser("revoke", help="end a credential for good; frees its name")):
            action.add_argument("name")
            action.add_argument("--why", default="", help="stays in the audit log")
            action.add_argument("--dry-run", action="store_true", help="only say what would be changed")
            action.add_argument("--json", action="store_true", dest="as_json", help="JSON instead of lines")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the action."""
        if options["action"] == "list":
            self._list(options)
            return
        values = {
            "name": options["name"],
            "actor": f"command:{getpass.getuser()}",
            "why": options["why"],
            "is_dry_run": options["dry_run"],
        }
        try:
            if options["action"] == "rotate":
                outcome = rotate_credential(overlap=timedelta(hours=options["overlap_hours"]), **values)
            elif options["action"] == "expire":
                outcome = set_credential_expiry(expires_at=options["at"], **values)
            else:
                outcome = revoke_credential(**values)
        except LithifyError as error:
            raise CommandError(str(error)) from error
        self._tell(outcome, as_json=options["as_json"])

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

    def _tell(self, outcome: CredentialOutcome, *, as_json: bool) -> None:
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


def moment(text: str) -> datetime:
    """Parse an argument as a moment in UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(f"a date or date and time in ISO 8601 is expected, not {text!r}") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)
