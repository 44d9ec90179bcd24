"""``manage.py query top|flame|series|export``: query stored profiles and print the result with its cost."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import IO, Any, cast

from django.core.management.base import BaseCommand, CommandError
from rich.console import Console

from engine.core.errors import LithifyError
from engine.formats.profile_block.selectors import matcher, parse_selector
from engine.query.flame.flamebearer import flamebearer
from engine.query.flame.levels import flame_graph
from engine.query.flame.pprof_tree import location_table
from engine.query.flame.top_table import top_table
from engine.query.flame.tree import FlameTree
from engine.query.merged_profile import merged_profile
from engine.query.model import QueryReport, Question, type_id
from engine.query.select_points import Aggregation, Grid
from webadmin.base.query_times import parse_time
from webadmin.query import query_views
from webadmin.query.questions import query_points, query_profile_types, query_series, query_stacks

POINTS = 60
"""Number of points of a timeline without a step."""
TYPES_NAMED = 30


class Command(BaseCommand):
    """Ask stored profiles."""

    help = "Ask stored profiles: the largest functions, a flame graph, series with their points, or a pprof file."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add a subcommand for each output format; all share the arguments of a query."""
        forms = parser.add_subparsers(dest="form", required=True)
        for name, summary in (
            ("top", "the functions with the largest own values"),
            ("flame", "a flame graph: an indented tree, or levels as viewers draw them"),
            ("series", "the series there are; with a type, their points over time"),
            ("export", "the merged profile as a pprof file"),
        ):
            form = forms.add_parser(name, help=summary)
            form.add_argument("--tenant", action="append", required=True, help="may be given several times")
            form.add_argument("--service", default="", help="short for a selector with its service_name")
            form.add_argument("--selector", default="{}", help='such as {region=~"eu-.*", pod!="a"}')
            form.add_argument("--type", default="", help="profile type id; needed if there are several")
            form.add_argument("--from", dest="start", default="now-1h", help="such as now-24h, 20260131, unix seconds")
            form.add_argument("--until", dest="end", default="now")
            if name != "export":
                form.add_argument("--json", action="store_true", help="one JSON object instead of a table")
        forms.choices["top"].add_argument("--limit", type=int, default=20, help="how many functions")
        flame = forms.choices["flame"]
        flame.add_argument("--cut", type=float, default=1.0, help="percent below which a branch is not printed")
        for form in (flame, forms.choices["export"]):
            form.add_argument("--max-nodes", type=int, default=0, help="cut to so many nodes (levels and file; 0: all)")
        series = forms.choices["series"]
        series.add_argument("--by", action="append", default=[], help="label to group by, or to list; repeatable")
        series.add_argument("--step", type=float, default=0, help="seconds (default: a 60th of the range)")
        series.add_argument("--average", action="store_true", help="of a step's profiles, instead of the sum")
        series.add_argument("--limit", type=int, default=0, help="only the largest series (0: all)")
        forms.choices["export"].add_argument("--output", required=True, help="file to write, - for standard output")

    def handle(self, *args: Any, form: str, **options: Any) -> None:
        """Run the query and print its result; exit with 2 if the result is partial."""
        try:
            question = _question(options)
            report = getattr(self, f"_{form}")(question, options)
        except LithifyError as error:
            raise CommandError(str(error)) from error
        if report.is_partial:
            sys.exit(2)

    def _top(self, question: Question, options: dict[str, Any]) -> QueryReport:
        kind = self._type(question, options)
        answer = query_stacks(options["tenant"], question.of_type(kind), FlameTree)
        rows, limit = top_table(answer.result), max(options["limit"], 0)
        if options["json"]:
            functions = [{"function": row.name, "self": row.own, "total": row.total} for row in rows[:limit]]
            self._print_json({"type": kind, "total": answer.result.total, "functions": functions}, answer.report)
        else:
            self._print([query_views.top_view(rows, answer.result.total, _unit(kind), limit)], answer.report)
        return answer.report

    def _flame(self, question: Question, options: dict[str, Any]) -> QueryReport:
        kind = self._type(question, options)
        answer = query_stacks(options["tenant"], question.of_type(kind), FlameTree)
        if options["json"]:
            graph = flame_graph(answer.result, options["max_nodes"])
            self._print_json(flamebearer(graph, kind.split(":")[1], _unit(kind)), answer.report)
        else:
            self._print(query_views.tree_view(answer.result, _unit(kind), options["cut"]), answer.report)
        return answer.report

    def _series(self, question: Question, options: dict[str, Any]) -> QueryReport:
        if not options["type"]:
            found = query_series(options["tenant"], question, options["by"])
            if options["json"]:
                self._print_json({"series": [dict(labels) for labels in found.result]}, found.report)
            else:
                self._print([query_views.series_view(found.result)], found.report)
            return found.report
        kind = type_id(options["type"])
        range_ms = question.end_ms - question.start_ms
        grid = Grid(
            start_ms=question.start_ms,
            end_ms=question.end_ms,
            step_ms=int(options["step"] * 1000) if options["step"] else max(1, -(-range_ms // POINTS)),
            group_by=tuple(options["by"]),
            aggregation=Aggregation.AVERAGE if options["average"] else Aggregation.SUM,
            limit=options["limit"],
        )
        answer = query_points(options["tenant"], question.of_type(kind), grid)
        if options["json"]:
            data = {"type": kind, "step_ms": grid.step_ms, "series": query_views.points_json(answer.result)}
            self._print_json(data, answer.report)
        else:
            self._print([query_views.points_view(answer.result, _unit(kind))], answer.report)
        return answer.report

    def _export(self, question: Question, options: dict[str, Any]) -> QueryReport:
        kind = self._type(question, options)
        answer = query_stacks(options["tenant"], question.of_type(kind), FlameTree, table_of=location_table)
        data = merged_profile(answer.result, kind, question.end_ms, max_nodes=options["max_nodes"], compress=True)
        if not data:
            raise CommandError("no profiles answer: nothing was written")
        if options["output"] == "-":
            sys.stdout.buffer.write(data)
            return answer.report
        try:
            Path(options["output"]).write_bytes(data)
        except OSError as error:
            raise CommandError(f"{options['output']}: {error.strerror}") from error
        self._print([f"{options['output']}: {len(data)} bytes"], answer.report)
        return answer.report

    def _type(self, question: Question, options: dict[str, Any]) -> str:
        """Return the requested profile type, or the only one there is."""
        if options["type"]:
            return type_id(options["type"])
        found = query_profile_types(options["tenant"], question).result
        if len(found) == 1:
            return found[0]
        if not found:
            raise CommandError("no profiles answer: look at the tenant, the service and the range")
        raise CommandError("--type is one of:\n  " + "\n  ".join(found[:TYPES_NAMED]))

    def _print(self, parts: list[Any], report: QueryReport) -> None:
        console = Console(
            file=cast("IO[str]", self.stdout), width=None if self.stdout.isatty() else 140, highlight=False
        )
        for part in parts:
            console.print(part, soft_wrap=not hasattr(part, "columns"))
        for line in query_views.report_lines(report):
            console.print(line, markup=False, soft_wrap=True)

    def _print_json(self, data: dict[str, Any], report: QueryReport) -> None:
        self.stdout.write(json.dumps(data | {"report": query_views.report_json(report)}))


def _question(options: dict[str, Any]) -> Question:
    now = time.time()
    own = (matcher("service_name", "=", options["service"]),) if options["service"] else ()
    question = Question(
        start_ms=int(parse_time(options["start"], now) * 1000),
        end_ms=int(parse_time(options["end"], now) * 1000),
        matchers=(*own, *parse_selector(options["selector"])),
    )
    question.check()
    return question


def _unit(kind: str) -> str:
    return kind.split(":")[2]
