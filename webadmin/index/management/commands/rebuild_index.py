"""``manage.py rebuild_index``: builds the index again from the bucket, without counting merged data twice."""

from __future__ import annotations

import getpass
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from engine.errors import LithifyError
from engine.storage import open_store
from webadmin.index.services.rebuild_index import RebuildOutcome, rebuild_index


class Command(BaseCommand):
    help = (
        "Register every block of the bucket that no other replaces. Run it again to resume. Exit code 1: some are bad."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--bucket", default=settings.OBJECT_STORE_URL, help="URL or folder (default: the store)")

    def handle(self, *args: Any, bucket: str, **options: Any) -> None:
        try:
            outcome = rebuild_index(
                store=open_store(bucket), actor=f"command:{getpass.getuser()}", progress=self._say_progress
            )
        except LithifyError as error:
            raise CommandError(f"{bucket}: {error}") from error
        for key, reason in outcome.left_out.items():
            self.stderr.write(f"left out {key}: {reason}")
        for key, error in outcome.bad:
            self.stderr.write(f"bad {key}: [{error.code}] {error}")
        for block_id in outcome.conflicting:
            self.stderr.write(f"kept {block_id} as it is: the bucket now holds other content under this id")
        if outcome.log_starts_at:
            self.stderr.write(f"the command log goes on at {outcome.log_starts_at}, behind that of the lost index")
        self.stdout.write(
            f"{outcome.found} blocks found, {outcome.added} added, {outcome.known} known before, "
            f"{len(outcome.left_out)} left out, {len(outcome.bad) + len(outcome.conflicting)} bad"
        )
        if outcome.bad or outcome.conflicting:
            sys.exit(1)

    def _say_progress(self, so_far: RebuildOutcome) -> None:
        self.stderr.write(f"{so_far.found} objects seen, {so_far.added} added, {so_far.known} known before")
