"""``manage.py create_worker_credential NAME``: print the secret of a new credential, once."""

from __future__ import annotations

import getpass
from argparse import ArgumentParser
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from engine.core.errors import LithifyError
from webadmin.base.access.credential_changes import create_credential
from webadmin.base.access.errors import NameTaken
from webadmin.base.access.scopes import SCOPE_POLL
from webadmin.base.actions.fields import moment


class Command(BaseCommand):
    help = "Issue a credential, by default one with which nodes poll for jobs; the only line of output is the secret."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="what the credential is for, e.g. the name of the machine")
        parser.add_argument(
            "--scope", action="append", help=f"what it may do, e.g. operate or blocks:add (default {SCOPE_POLL})"
        )

        parser.add_argument("--expires", type=moment, help="UTC, e.g. 2027-01-31; absent: never")
        parser.add_argument("--why", default="", help="stays in the audit log")

    def handle(
        self,
        *args: Any,
        name: str,
        scope: list[str] | None,
        expires: datetime | None = None,
        why: str = "",
        **options: Any,
    ) -> None:
        actor = f"command:{getpass.getuser()}"
        try:
            outcome = create_credential(
                name=name, scopes=scope or [SCOPE_POLL], expires_at=expires, actor=actor, why=why
            )
        except NameTaken as error:
            raise CommandError(f"{error}; revoke it or choose another name") from error
        except LithifyError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(outcome.secret)
