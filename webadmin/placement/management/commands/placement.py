"""``manage.py placement``: show and change how datasets are placed, predict what would move, draw the ring."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from engine.core.errors import LithifyError
from engine.placement.model import TOKENS_DEFAULT
from engine.placement.plots.load_curves import all_plots
from webadmin.base.actions.action import OperatorAction, outcome_json
from webadmin.base.actions.command import add_options, run_action
from webadmin.base.actions.fields import Group
from webadmin.placement.models import RulesHead
from webadmin.placement.placement_actions import DRAIN, SET_LIMITS, SET_OVERRIDE, SIZE_RING
from webadmin.placement.rule_changes import rule_json
from webadmin.placement.services.build_placement_rules import rules_of
from webadmin.placement.services.forecast_placement import FleetChange, what_if

ACTIONS: dict[str, tuple[OperatorAction, Sequence[str]]] = {
    "limits": (SET_LIMITS, ()),
    "override": (SET_OVERRIDE, ("tenant", "dataset")),
    "drain": (DRAIN, ("instances",)),
    "ring-size": (SIZE_RING, ("shards",)),
}


class Command(BaseCommand):
    """One subcommand per question or action; each prints JSON."""

    help = "Show or change how datasets are placed, say what a change would move, draw how placement works."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the subcommands."""
        parts = parser.add_subparsers(dest="part", required=True)
        show = parts.add_parser("show", help="the rules in force, one dataset per line")
        show.add_argument("--tenant", default=None)
        for name, (action, positional) in ACTIONS.items():
            part = parts.add_parser(name, help=action.label, description=action.about)
            add_options(part, (*action.targets, *action.fields), positional)
            if any(isinstance(field, Group) for field in action.fields):
                part.add_argument("--remove", action="store_true", help="remove the values")
        question = parts.add_parser("what-if", help="what moves if instances come and go")
        question.add_argument(
            "--add", nargs="*", default=[], metavar="ZONE", help='a new instance each; "" has no zone'
        )
        question.add_argument("--remove", nargs="*", default=[], metavar="INSTANCE")
        question.add_argument("--tokens", type=int, default=TOKENS_DEFAULT, help="of each new instance")
        question.add_argument("--shards", type=int, help="another number of shards")
        plot = parts.add_parser("plot", help="draw the allocator's traces and the load_curves of load as SVG")
        plot.add_argument("--out", type=Path, default=Path("placement-plots"), help="the folder for the pictures")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the subcommand; errors are printed as text."""
        part = options["part"]
        try:
            found = [_run(part, options)] if part in ACTIONS else getattr(self, f"_{part.replace('-', '_')}")(options)
            for line in found:
                self.stdout.write(line if isinstance(line, str) else json.dumps(line))
        except LithifyError as error:
            raise CommandError(str(error)) from error

    def _show(self, options: dict[str, Any]) -> list[Any]:
        rules = rules_of(RulesHead.objects.filter(id=1).first() or RulesHead())
        head = {"version": rules.version, "created_at_ms": rules.created_at_ms, "datasets": len(rules.datasets)}
        return [
            head,
            *(
                {"tenant": key[0], "dataset": key[1]} | (rule_json(rule) or {})
                for key, rule in rules.datasets.items()
                if options["tenant"] in (None, key[0])
            ),
        ]

    def _what_if(self, options: dict[str, Any]) -> list[Any]:
        change = FleetChange(
            add=options["add"], remove=options["remove"], tokens=options["tokens"], shards=options["shards"]
        )
        return [what_if(change).to_json()]

    def _plot(self, options: dict[str, Any]) -> list[Any]:
        folder: Path = options["out"]
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, picture in all_plots().items():
            path = folder / f"{name}.svg"
            path.write_text(picture, encoding="utf-8")
            paths.append(str(path))
        return paths


def _run(part: str, options: dict[str, Any]) -> dict[str, Any]:
    """Run an action; ``--remove`` stands for null in place of its values."""
    action, _ = ACTIONS[part]
    removed = {}
    for field in action.fields:
        if isinstance(field, Group):
            if bool(field.from_options(options)) == options["remove"]:
                raise CommandError("give values to set, or --remove to remove the values")
            removed = {field.name: None} if options["remove"] else {}
    return outcome_json(run_action(action, options, removed))
