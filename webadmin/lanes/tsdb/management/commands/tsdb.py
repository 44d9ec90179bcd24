"""``manage.py tsdb``: adopt buckets of Prometheus blocks and show the progress of their compaction."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import IO, Any, cast

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.table import Table

from engine.core.errors import LithifyError
from engine.schedule.progress import count_text, seconds_text
from engine.storage import ObjectStore, open_store
from webadmin.base.actions.command import add_options, run_action
from webadmin.lanes.tsdb.actions import ADOPT, WITHDRAW
from webadmin.lanes.tsdb.explain import explain_blocks
from webadmin.lanes.tsdb.models import Bucket
from webadmin.lanes.tsdb.progress import TenantProgress, tenant_progress
from webadmin.lanes.tsdb.services import rounds
from webadmin.lanes.tsdb.services.buckets import find_bucket
from webadmin.lanes.tsdb.services.isolate_sources import isolate_sources
from webadmin.lanes.tsdb.services.scan_buckets import scan_bucket
from webadmin.lanes.tsdb.status import partition_notices, tenant_state
from webadmin.schedule.services.operation import OperationOutcome

POLL_SECONDS = 1.0
SCAN_SECONDS = 30.0


class Command(BaseCommand):
    """Adopt, status, explain, withdraw."""

    help = "Adopt buckets of Prometheus blocks, and say how far their compaction is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the subcommands and their arguments."""
        actions = parser.add_subparsers(dest="action", required=True)
        adopt = actions.add_parser("adopt", help="become the compactor of a bucket")
        add_options(adopt, (*ADOPT.targets, *ADOPT.fields), positional=("url",))
        adopt.add_argument("--wait", action="store_true", help="show progress until nothing is left to do")
        status = actions.add_parser("status", help="how far every tenant is")
        status.add_argument("--bucket", default="", help="of one bucket only")
        status.add_argument("--json", action="store_true", dest="as_json", help="JSON instead of a table")
        explain = actions.add_parser("explain", help="where a block is, why, and what would change it")
        explain.add_argument("ulid")
        withdraw = actions.add_parser("withdraw", help="give up a group's result that the bucket refuses for good")
        add_options(withdraw, WITHDRAW.targets, positional=("groups",))

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the subcommand."""
        try:
            {
                "adopt": self._adopt,
                "status": self._status,
                "explain": self._explain,
                "withdraw": self._withdraw,
            }[options["action"]](options)
        except LithifyError as error:
            raise CommandError(str(error)) from error

    def _adopt(self, options: dict[str, Any]) -> None:
        adopted = run_action(ADOPT, options)
        [name], place = adopted["changed"], adopted["settings"]
        if options["dry_run"]:
            self.stdout.write(f"would adopt {name}: {place['url']}")
            return
        bucket = find_bucket(name)
        self.stdout.write(f"adopted {bucket.name}: {bucket.url}, {bucket.get_layout_display()}")
        if options["wait"]:
            self._wait(bucket)

    def _wait(self, bucket: Bucket) -> None:
        """Run the rounds of the control tasks until nothing is left to compact; nodes do the merging.

        Safe to run beside the control tasks.
        """
        store = open_store(bucket.url)
        last, scanned_at = "", 0.0
        while True:
            if time.monotonic() - scanned_at > SCAN_SECONDS:
                scan_bucket(bucket, store)
                scanned_at = time.monotonic()
            _round(store, bucket)
            tenants = tenant_progress(bucket.id)
            if (line := _line(tenants)) != last:
                self.stdout.write(line)
                self.stdout.flush()
                last = line
            if all(tenant.is_done or tenant.is_stuck or tenant.refusal for tenant in tenants):
                break
            time.sleep(POLL_SECONDS)
        self._table(tenants)
        for tenant in tenants:
            if tenant.refusal:
                self.stderr.write(f"{tenant.tenant}: {tenant.refusal}")
        if parked := sum(tenant.jobs_parked for tenant in tenants):
            raise CommandError(
                f"{count_text(parked, 'job')} parked after failing too often, the rest is done: see why with "
                "'reprocess_failed_jobs --dry-run --lane tsdb' or on the page of evictions, then give it another run"
            )

    def _status(self, options: dict[str, Any]) -> None:
        bucket_id = None
        if options["bucket"]:
            bucket_id = find_bucket(options["bucket"]).id
        tenants = tenant_progress(bucket_id)
        if options["as_json"]:
            self.stdout.write(json.dumps({"tenants": [tenant.to_json() for tenant in tenants]}, indent=2))
        else:
            self._table(tenants)

    def _table(self, tenants: list[TenantProgress]) -> None:
        table = Table("bucket", "tenant", "blocks", "waiting", "compactions", "jobs", "parked", "to write", "ready in")
        for each in tenants:
            jobs = f"{each.jobs_running} of {each.jobs_running + each.jobs_waiting} run"
            table.add_row(
                *(each.bucket, each.tenant, str(each.blocks), str(each.waiting), str(each.compactions), jobs),
                *(str(each.jobs_parked), str(each.to_write), _ready(each)),
            )
        Console(file=cast("IO[str]", self.stdout), width=160, soft_wrap=True).print(table)
        for each in tenants:
            for _, text in partition_notices(each.too_large, each.parts):
                self.stdout.write(f"{each.bucket}/{each.tenant}: {text}")

    def _explain(self, options: dict[str, Any]) -> None:
        found = explain_blocks(options["ulid"])
        if not found:
            raise CommandError(f"no bucket has a block {options['ulid']!r}, as far as the last scan saw")
        for each in found:
            self.stdout.write(each.sentence)

    def _withdraw(self, options: dict[str, Any]) -> None:
        outcome: OperationOutcome = run_action(WITHDRAW, options)
        for name, why in outcome.left:
            raise CommandError(f"{name} is left as it is: {why}")
        verb = "would withdraw" if outcome.is_dry_run else "withdrew"
        self.stdout.write(f"{verb} the result of {', '.join(outcome.changed)}")


def _round(store: ObjectStore, bucket: Bucket) -> None:
    def opened(url: str) -> ObjectStore:
        return store if url == bucket.url else open_store(url)

    rounds.plan_due(opened)
    rounds.write_outboxes(opened)
    isolate_sources(opened)


def _line(tenants: list[TenantProgress]) -> str:
    blocks = count_text(sum(each.blocks for each in tenants), "block")
    left = count_text(sum(each.compactions for each in tenants), "compaction")
    running = sum(each.jobs_running for each in tenants)
    parked = sum(each.jobs_parked for each in tenants)
    return f"{blocks} of {count_text(len(tenants), 'tenant')}, {left} left, {running} running, {parked} parked"


def _ready(tenant: TenantProgress) -> str:
    state = tenant_state(tenant)
    if state.word not in ("compacting", "caught up"):
        return f"{state.word}: {state.why}"
    if tenant.is_done:
        again = tenant.rechecked_at_ms
        return (
            f"caught up until {datetime.fromtimestamp(again / 1000, UTC):%Y-%m-%d %H:%M} UTC" if again else "caught up"
        )
    return "not known yet" if tenant.seconds is None else seconds_text(tenant.seconds)
