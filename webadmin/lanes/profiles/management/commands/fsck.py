"""``manage.py fsck``: compares bucket and index both ways; with ``--repair`` it first adds what the index lacks."""

from __future__ import annotations

import getpass
import json
import sys
from argparse import ArgumentParser
from collections import Counter
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from engine.core.errors import LithifyError
from engine.storage import open_store
from webadmin.lanes.profiles.management.commands.rebuild_index import details, summary
from webadmin.lanes.profiles.services.compare_bucket import Finding, compare_bucket
from webadmin.lanes.profiles.services.rebuild_index import rebuild_index


class Command(BaseCommand):
    help = (
        "Find missing, unknown and differing objects. Exit code 1: live data is damaged; unknown objects are no damage."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--bucket", default=settings.OBJECT_STORE_URL, help="URL or folder (default: the store)")
        parser.add_argument("--deep", action="store_true", help="read every object and check its checksum")
        parser.add_argument(
            "--repair",
            action="store_true",
            help="first register the blocks that count by the records in the bucket, and remove from the index those "
            "that were merged before; needed when the database went back in time",
        )
        parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")

    def handle(self, *args: Any, bucket: str, deep: bool, repair: bool, **options: Any) -> None:
        is_incomplete = self._repair(bucket) if repair else False
        counts: Counter[str] = Counter()
        found = []
        try:
            for difference in compare_bucket(open_store(bucket), is_deep=deep):
                counts[difference.finding.value] += 1
                found.append(difference)
                if not options["json"]:
                    self.stdout.write(f"{difference.finding:<10}  {difference.key}  {difference.detail}")
        except LithifyError as error:
            raise CommandError(f"{bucket}: {error}") from error
        if options["json"]:
            rows = [{"finding": d.finding.value, "key": d.key, "detail": d.detail} for d in found]
            self.stdout.write(json.dumps({"counts": dict(counts), "differences": rows}))
        else:
            self.stdout.write(", ".join(f"{counts[finding.value]} {finding.value}" for finding in Finding))
        if is_incomplete or any(Finding(name).is_damage for name in counts):
            sys.exit(1)

    def _repair(self, bucket: str) -> bool:
        """Repair the index; return whether something is left to do."""
        try:
            outcome = rebuild_index(store=open_store(bucket), actor=f"command:{getpass.getuser()}")
        except LithifyError as error:
            raise CommandError(f"{bucket}: {error}") from error
        for line in details(outcome):
            self.stderr.write(line)
        self.stderr.write(summary(outcome))
        return outcome.is_incomplete
