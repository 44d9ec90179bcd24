"""``manage.py create_worker_credential NAME``: prints the secret of a new credential, once."""

from __future__ import annotations

import getpass
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from webadmin.access.errors import NameTaken
from webadmin.access.services import issue_worker_credential


class Command(BaseCommand):
    help = "Issue a credential with which compactor nodes poll for jobs; the only line of output is the secret."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="what the credential is for, e.g. the name of the machine")

    def handle(self, *args: Any, name: str, **options: Any) -> None:
        try:
            issued = issue_worker_credential(name=name, actor=f"command:{getpass.getuser()}")
        except NameTaken as error:
            raise CommandError(f"{error}; revoke it or choose another name") from error
        self.stdout.write(issued.wire_form)
