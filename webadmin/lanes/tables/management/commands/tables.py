"""``manage.py tables``: create tables from folders of Parquet files and show the progress of their compaction."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import IO, Any, cast
from urllib.parse import urlsplit

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.table import Table

from engine.core.errors import LithifyError
from engine.lanes.tables.jobs import TIME_UNITS
from engine.storage import open_store
from webadmin.adminkit.formatting import size_text
from webadmin.base.actions.command import add_options, command_context, run_action
from webadmin.lanes.tables.actions import RELEASE_FILES
from webadmin.lanes.tables.column_sizes import NAME_MAX
from webadmin.lanes.tables.explain import explain_chunk, explain_path
from webadmin.lanes.tables.models import DataSource
from webadmin.lanes.tables.services.adopt_table import Adoption, adopt_table, rescan_table
from webadmin.lanes.tables.services.preview_plan import preview_plan
from webadmin.lanes.tables.services.run_cycle import run_source_cycle
from webadmin.lanes.tables.services.sources import NewTable, find_table
from webadmin.lanes.tables.status import TableStatus, statuses, table_state
from webadmin.lanes.tables.table_fields import DEFAULT_TENANT

GONE_SHOWN = 20


class Command(BaseCommand):
    """Adopt, rescan, status, plan, explain, release."""

    help = "Make tables of folders of Parquet files, and say how far their compaction is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the subcommands and their arguments."""
        actions = parser.add_subparsers(dest="action", required=True)
        adopt = actions.add_parser("adopt", help="make a table of a folder of Parquet files")
        adopt.add_argument("url", help="file:///folder or s3://bucket/prefix")
        adopt.add_argument("--time-column", required=True, help="the column that says when")
        adopt.add_argument("--time-unit", default="", choices=TIME_UNITS, help="what a column of whole numbers counts")
        adopt.add_argument("--granularity", default="day", help="hour, day, week, month, quarter, year or like PT6H")
        adopt.add_argument("--timezone", default="UTC", help="whose days they are")
        adopt.add_argument("--name", default="", help="what to call it (default: made of the URL)")
        adopt.add_argument("--dry-run", action="store_true", help="read the first files and change nothing")
        rescan = actions.add_parser("rescan", help="take what is new in the folder, and say what is gone")
        status = actions.add_parser("status", help="how far every table is")
        plan = actions.add_parser("plan", help="take a revision of the controller now")
        plan.add_argument("--dry-run", action="store_true", help="plan the whole table, and change nothing")
        explain = actions.add_parser("explain", help="where a file or chunk is, why, and what would change it")
        explain.add_argument("subject", help="a path below the table's URL, or a time in unix milliseconds")
        release = actions.add_parser("release", help="read quarantined files again")
        add_options(release, RELEASE_FILES.targets, positional=("paths",))
        for each in (rescan, plan, explain):
            each.add_argument("--table", required=True, help="which one")
        for each in (adopt, rescan, plan, explain):
            each.add_argument("--tenant", default=DEFAULT_TENANT, help=f"whose (default: {DEFAULT_TENANT})")
        status.add_argument("--tenant", default="", help="of one tenant only")
        for each in (adopt, rescan, status, plan):
            each.add_argument("--json", action="store_true", dest="as_json", help="JSON instead of words")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the subcommand."""
        try:
            getattr(self, f"_{options['action']}")(options)
        except LithifyError as error:
            raise CommandError(str(error)) from error

    def _say(self, text: str) -> None:
        self.stderr.write(text)

    def _adopt(self, options: dict[str, Any]) -> None:
        store = open_store(options["url"])
        new = NewTable(
            tenant=options["tenant"],
            name=options["name"] or _name_of(store.url),
            url=store.url,
            time_column=options["time_column"],
            time_unit=options["time_unit"],
            settings={"granularity": options["granularity"], "time_zone": options["timezone"]},
        )
        context = command_context(options, "adopted by command")
        self._tell(adopt_table(new, store, context=context, say=self._say), options)

    def _rescan(self, options: dict[str, Any]) -> None:
        source = self._table(options)
        context = command_context(options, "scanned again by command")
        self._tell(rescan_table(source, open_store(source.url), context=context, say=self._say), options)

    def _tell(self, found: Adoption, options: dict[str, Any]) -> None:
        if options["as_json"]:
            self.stdout.write(json.dumps(found.to_json(), indent=2))
            return
        counts = ", ".join(f"{count} {name}" for name, count in sorted(found.statuses.items())) or "nothing new"
        is_dry_run = options.get("dry_run", False)
        self.stdout.write(f"{found.table}: {found.files} files below {found.url}: {counts}{' (dry run)' * is_dry_run}")
        for path, message in found.refusals:
            self.stdout.write(f"  left out: {message if path in message else f'{path}: {message}'}")
        for text in found.unchecked:
            self.stdout.write(f"  unchecked: {text}")
        for path in found.gone[:GONE_SHOWN]:
            self.stdout.write(f"  gone: {path}")
        if len(found.gone) > GONE_SHOWN:
            self.stdout.write(f"  and {len(found.gone) - GONE_SHOWN} more are gone")
        if found.skipped:
            self.stdout.write(f"  left out: {found.skipped} links and special files; only regular files are objects")
        if found.sequence:
            self.stdout.write(f"readers see manifest {found.sequence}")

    def _status(self, options: dict[str, Any]) -> None:
        sources = DataSource.objects.order_by("tenant", "name")
        if options["tenant"]:
            sources = sources.filter(tenant=options["tenant"])
        found = statuses(sources)
        if options["as_json"]:
            self.stdout.write(json.dumps({"tables": [_status_json(one, found[one.id]) for one in sources]}, indent=2))
            return
        table = Table(
            "tenant", "table", "chunks", "to rewrite", "deferred", "tasks", "bad files", "to publish", "state"
        )
        for one in sources:
            state = found[one.id]
            tasks = f"{state.running} run, {state.waiting + state.blocked} wait, {state.parked} parked"
            table.add_row(
                *(one.tenant, one.name, str(state.chunks), size_text(state.to_rewrite), str(state.deferred), tasks),
                *(str(state.bad_files), str(state.unpublished), _state(one, state)),
            )
        Console(file=cast("IO[str]", self.stdout), width=180, soft_wrap=True).print(table)

    def _plan(self, options: dict[str, Any]) -> None:
        source = self._table(options)
        if not options["dry_run"]:
            done = run_source_cycle(source, context=command_context(options, "planned by command"))
            data = {"analysed": done.analysed, "created": len(done.created), "started": done.started}
            data |= {"ended": done.ended, "put_off": done.shed}
            text = done.refusal or ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in data.items())
            self.stdout.write(json.dumps(data) if options["as_json"] else text)
            return
        forecast = preview_plan(source)
        data = {
            "tasks": len(forecast.plan.tasks),
            "chunks": forecast.chunks,
            "segments_in": forecast.segments_in,
            "segments_out": forecast.segments_out,
            "bytes": forecast.bytes_in,
            "cost": forecast.cost,
            "again": len(forecast.again),
        }
        if options["as_json"]:
            self.stdout.write(json.dumps(data, indent=2))
            return
        self.stdout.write(
            f"{data['tasks']} tasks would rewrite {data['chunks']} chunks: {data['segments_in']} files of "
            f"{size_text(data['bytes'])} become {data['segments_out']}; after that "
            + ("nothing is left to do" if forecast.is_fix_point else f"{data['again']} chunks would be rewritten again")
        )
        for task in forecast.plan.tasks:
            self.stdout.write(f"  {task.reason}")

    def _explain(self, options: dict[str, Any]) -> None:
        source, subject = self._table(options), options["subject"]
        if subject.removeprefix("-").isdigit():
            self.stdout.write(explain_chunk(source, int(subject)).sentence)
            return
        found = explain_path(subject, source)
        if not found:
            raise CommandError(f"{source} has no file {subject!r}, and none is quarantined")
        for each in found:
            self.stdout.write(each.sentence)

    def _release(self, options: dict[str, Any]) -> None:
        released = run_action(RELEASE_FILES, options)["released"]
        self.stdout.write(f"released {len(released)} of {len(options['paths'])} files")

    def _table(self, options: dict[str, Any]) -> DataSource:
        return find_table(options["tenant"], options["table"])


def _state(source: DataSource, table: TableStatus) -> str:
    state = table_state(source, table)
    return f"{state.word}: {state.why}" if state.why else state.word


def _status_json(source: DataSource, table: Any) -> dict[str, Any]:
    numbers = {name: getattr(table, name) for name in type(table).__dataclass_fields__}
    about = {"tenant": source.tenant, "table": source.name, "url": source.url, "sequence": source.sequence}
    return about | numbers | {"state": table_state(source, table).word}


def _name_of(url: str) -> str:
    parts = [part for part in urlsplit(url).path.split("/") if part]
    name = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in (parts or ["table"])[-1])
    return (name.strip("-") or "table")[:NAME_MAX]
