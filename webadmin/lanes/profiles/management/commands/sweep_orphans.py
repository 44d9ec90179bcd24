"""``manage.py sweep_orphans``: deletes old objects that were written and never committed."""

from __future__ import annotations

import getpass
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from engine.core.errors import LithifyError
from engine.storage import open_store
from webadmin.lanes.profiles.services.compare_bucket import GRACE_HOURS, sweep_orphans


class Command(BaseCommand):
    help = "Delete objects of our own layout that neither the index nor a job can name."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--grace-hours", type=float, default=GRACE_HOURS, help="how old they must be (at least 1)")
        parser.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
        parser.add_argument("--force", action="store_true", help="even if most of the bucket is unknown to the index")

        parser.add_argument(
            "--segments",
            action="store_true",
            help="segments too: one that the index does not know may have been acknowledged; run fsck --repair first",
        )

    def handle(
        self, *args: Any, grace_hours: float, dry_run: bool, force: bool, segments: bool, **options: Any
    ) -> None:
        try:
            outcome = sweep_orphans(
                store=open_store(settings.OBJECT_STORE_URL),
                actor=f"command:{getpass.getuser()}",
                grace_hours=grace_hours,
                is_dry_run=dry_run,
                is_forced=force,
                has_segments=segments,
            )
        except LithifyError as error:
            raise CommandError(str(error)) from error
        verb = "would delete" if dry_run else "deleted"
        for key in outcome.swept:
            self.stdout.write(f"{verb} {key}")
        for key, reason in outcome.kept:
            self.stdout.write(f"kept {key}: {reason}")
        self.stdout.write(f"{verb} {len(outcome.swept)} objects, kept {len(outcome.kept)}")
        if outcome.refusal:
            self.stdout.write(f"without --dry-run this is refused: {outcome.refusal}")
