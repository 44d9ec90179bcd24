"""``manage.py check_object_store``: tests every operation that Lithify uses and prints the results."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from engine.core.errors import LithifyError
from engine.storage import open_store
from engine.storage.conformance import ConformanceReport, check_store


class Command(BaseCommand):
    help = "Try every operation of an object store with scratch objects. Exit code 1 if one does not work."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--bucket", default=settings.OBJECT_STORE_URL, help="URL or folder (default: the store)")

    def handle(self, *args: Any, bucket: str, **options: Any) -> None:
        try:
            store = open_store(bucket)
            try:
                report = check_store(store)
            finally:
                store.close()
        except LithifyError as error:
            raise CommandError(f"{bucket}: {error}") from error
        self._show(report)
        if not report.is_conforming:
            raise CommandError(f"{bucket} does not do what Lithify needs; see above")

    def _show(self, report: ConformanceReport) -> None:
        for result in report.results:
            self.stdout.write(f"{'no ' if result.fault else 'yes'}  {result.claim}  {result.fault}".rstrip())
        conditional = report.conditional_create.value if report.conditional_create else "not known"
        self.stdout.write(f"conditional create: {conditional} (nothing depends on it)")
