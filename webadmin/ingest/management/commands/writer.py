"""``manage.py writer``: run a segment writer in this process."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from engine.placement.model import TOKENS_DEFAULT
from engine.storage import InvalidStoreUrl, open_store
from webadmin.base.database.deadlines import ProcessRole, limit_statements
from webadmin.ingest.writer.process import WriterOptions, run_writer
from webadmin.ingest.writer.segment_writer import WriterLimits
from webadmin.placement.services.instances import InstanceRefused


class Command(BaseCommand):
    """Take profiles from distributors, make segments of them, and acknowledge what is durable."""

    help = "Run a segment writer: it registers itself, takes pushes until SIGTERM, then flushes and leaves."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the listening address and the identity of the instance."""
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
        parser.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
        parser.add_argument(
            "--address", default="", help="URL at which web processes reach it (default: host and port)"
        )
        parser.add_argument("--zone", default="", help="its zone, if the fleet has zones")
        parser.add_argument(
            "--instance-id", default="", help="a name that stays over restarts (default: host name, port)"
        )
        parser.add_argument(
            "--tokens", type=int, default=TOKENS_DEFAULT, help=f"its share of the shards (default {TOKENS_DEFAULT})"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until SIGTERM or SIGINT."""
        wished = WriterOptions(
            host=options["host"],
            port=options["port"],
            name=options["instance_id"],
            address=options["address"],
            zone=options["zone"],
            tokens=options["tokens"],
            limits=WriterLimits(
                flush_seconds=settings.WRITER_FLUSH_SECONDS,
                flush_bytes=settings.WRITER_FLUSH_BYTES,
                memory_bytes=settings.WRITER_MEMORY_BYTES,
            ),
        )
        limit_statements(ProcessRole.WRITER)
        try:
            run_writer(wished, open_store(settings.OBJECT_STORE_URL))
        except (InstanceRefused, InvalidStoreUrl) as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"{wished.host}:{wished.port}: {error.strerror}; choose another --port") from error
