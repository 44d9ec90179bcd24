"""``manage.py retention``: previews or runs retention; the control task runs it every 15 minutes."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import IO, Any, cast

from django.core.management.base import BaseCommand
from rich.console import Console
from rich.table import Table

from engine.schedule.progress import count_text
from webadmin.base.actions.action import outcome_json
from webadmin.base.actions.command import add_options, run_action
from webadmin.lanes.profiles.actions.deletion import APPLY_RETENTION, CHANGE_HOLD, SET_RETENTION
from webadmin.lanes.profiles.services.retain import RetentionReport


class Command(BaseCommand):
    help = "Drop data that is older than its tenant keeps it, or with an option below change how long that is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_options(parser, ())
        parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON object instead of a table")
        parser.add_argument("--tenant", default="", help="whose rule or hold (default for rules: all tenants)")
        change = parser.add_mutually_exclusive_group()
        change.add_argument("--keep-days", type=int, metavar="DAYS", help="set how long data is kept; 0: indefinitely")
        change.add_argument("--remove-rule", action="store_true", help="remove the rule of the tenant")
        change.add_argument("--hold", action="store_true", help="remove nothing of the tenant until --lift")
        change.add_argument("--lift", action="store_true", help="end the hold")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = {"tenant": options["tenant"]}
        if options["keep_days"] is not None or options["remove_rule"]:
            changed = run_action(SET_RETENTION, options, tenant | {"keep_days": options["keep_days"]})
        elif options["hold"] or options["lift"]:
            changed = run_action(CHANGE_HOLD, options, tenant | {"lift": options["lift"]})
        else:
            self._show(run_action(APPLY_RETENTION, options), as_json=options["as_json"])
            return
        self.stdout.write(json.dumps(outcome_json(changed)))

    def _show(self, report: RetentionReport, *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(report.to_json()))
            return
        table = Table("tenant", "shard", "made from (UTC)", "newest data (UTC)", "kept from (UTC)", "blocks", "bytes")
        for each in report.expired:
            part = each.part
            table.add_row(
                part.tenant,
                str(part.shard),
                _time(part.partition_start_ms),
                _time(part.max_time_ms),
                _time(each.marker_ms),
                count_text(each.blocks, "segment") if part.in_segments else str(each.blocks),
                str(each.bytes),
            )
        if report.expired:
            Console(file=cast("IO[str]", self.stdout), width=160, soft_wrap=True).print(table)
        verb = "would go" if report.is_dry_run else "went"
        dropped, trimmed = (
            count_text(report.dropped_blocks, "block"),
            count_text(report.trimmed_segments, "segment"),
        )
        done = "" if report.is_dry_run else f": {dropped}, {trimmed} trimmed"
        parts = count_text(len(report.expired), "part")
        self.stdout.write(f"{parts} of the index {verb}{done}; {report.left_for_later} left for later")


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
