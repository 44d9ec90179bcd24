"""``manage.py rebuild_index``: rebuilds the index from the bucket, without counting merged data twice."""

from __future__ import annotations

import getpass
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from engine.core.errors import LithifyError
from engine.storage import open_store
from webadmin.lanes.profiles.services.rebuild_index import RebuildOutcome, rebuild_index


class Command(BaseCommand):
    help = (
        "Register every block of the bucket that no other replaces. Run it again to resume. Exit code 1: some are bad."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--bucket", default=settings.OBJECT_STORE_URL, help="URL or folder (default: the store)")

    def handle(self, *args: Any, bucket: str, **options: Any) -> None:
        try:
            outcome = rebuild_index(
                store=open_store(bucket), actor=f"command:{getpass.getuser()}", progress=self._print_progress
            )
        except LithifyError as error:
            raise CommandError(f"{bucket}: {error}") from error
        for line in details(outcome):
            self.stderr.write(line)
        self.stdout.write(summary(outcome))
        if outcome.is_incomplete:
            sys.exit(1)

    def _print_progress(self, so_far: RebuildOutcome) -> None:
        self.stderr.write(f"{so_far.found} objects seen, {so_far.added} added, {so_far.known} known before")


def details(outcome: RebuildOutcome) -> Iterator[str]:
    """Yield a line for every object that was not registered normally, and for changes of the log."""
    for key, reason in outcome.left_out.items():
        yield f"left out {key}: {reason}"
    for key, error in outcome.bad:
        yield f"bad {key}: [{error.code}] {error}"
    for block_id in outcome.conflicting:
        yield f"kept {block_id} as it is: the bucket now holds other content under this id"
    if outcome.log_starts_at:
        yield f"the command log continues at {outcome.log_starts_at}, behind that of the lost index"
    if outcome.dropped:
        yield f"{outcome.dropped} blocks removed from the index: records in the bucket say that they were merged"
    if outcome.unsettled:
        yield f"deletions stay held up: {outcome.unsettled}"
    if outcome.settled:
        yield f"{outcome.settled} positions of a lost history removed from the bucket: deletions continue"


def summary(outcome: RebuildOutcome) -> str:
    """Return the counts in one line."""
    return (
        f"{outcome.found} blocks found, {outcome.added} added, {outcome.known} known before, "
        f"{len(outcome.left_out)} left out, {len(outcome.bad) + len(outcome.conflicting)} bad"
    )
