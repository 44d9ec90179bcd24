"""``manage.py import_blocks``: builds the index from objects that are already in a bucket."""

from __future__ import annotations

import getpass
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from engine.core.errors import LithifyError
from engine.formats.profile_block.container.metadata_file import read_metadata_file
from engine.formats.profile_block.model import BlockMeta
from engine.storage import open_store
from webadmin.lanes.profiles.services import ImportOutcome, import_blocks


class Command(BaseCommand):
    help = "Register the block objects of a bucket. Exit code 1 if some could not be registered."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--bucket", default=settings.OBJECT_STORE_URL, help="URL or folder (default: the store)")
        parser.add_argument("--prefix", default="", help="only keys that start so")
        parser.add_argument("--metadata", type=Path, help="JSON side file, for segments without a metadata footer")
        parser.add_argument("--everything", action="store_true", help="also what seems to be merged into other objects")
        parser.add_argument("--tenant", action="append", default=[], help="only blocks with data of this tenant")

    def handle(self, *args: Any, bucket: str, metadata: Path | None, **options: Any) -> None:
        try:
            outcome = import_blocks(
                store=open_store(bucket),
                actor=f"command:{getpass.getuser()}",
                side_file=_side_file(metadata),
                tenants=frozenset(options["tenant"]),
                prefix=options["prefix"],
                is_trusting=options["everything"],
                progress=lambda so_far: self.stderr.write(f"{so_far.found} objects seen, {so_far.imported} imported"),
            )
        except LithifyError as error:
            raise CommandError(f"{bucket}: {error}") from error
        self._report(outcome)
        if bucket != settings.OBJECT_STORE_URL:
            self.stderr.write(f"note: workers must see this bucket as their store: set OBJECT_STORE_URL={bucket}")
        if outcome.bad or outcome.conflicting:
            sys.exit(1)

    def _report(self, outcome: ImportOutcome) -> None:
        for key, reason in outcome.superseded.items():
            self.stderr.write(f"left out {key}: {reason}")
        for key, error in outcome.bad:
            self.stderr.write(f"skipped {key}: [{error.code}] {error}")
        for block_id in outcome.conflicting:
            self.stderr.write(f"kept {block_id} as it is: the bucket now holds other content under this id")
        self.stdout.write(
            f"{outcome.found} blocks found, {outcome.imported} imported, {outcome.known} known before, "
            f"{outcome.left_out} of other tenants, {len(outcome.superseded)} left out, "
            f"{len(outcome.bad) + len(outcome.conflicting)} skipped"
        )


def _side_file(path: Path | None) -> list[BlockMeta]:
    if path is None:
        return []
    try:
        return read_metadata_file(path.read_bytes())
    except OSError as error:
        raise CommandError(f"--metadata {path}: {error.strerror}") from error
