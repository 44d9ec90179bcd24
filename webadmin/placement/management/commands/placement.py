"""``manage.py placement``: show and change how datasets are placed, predict what would move, draw the ring."""

from __future__ import annotations

import getpass
import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from engine.core.errors import LithifyError
from engine.placement.model import TOKENS_DEFAULT, LoadBalancing
from engine.placement.plots.load_curves import all_plots
from webadmin.placement.models import RulesHead
from webadmin.placement.operator_settings import LIMIT_NAMES
from webadmin.placement.rule_changes import rule_json
from webadmin.placement.services.build_placement_rules import rules_of
from webadmin.placement.services.decide_placement import change_limits, change_override
from webadmin.placement.services.forecast_placement import FleetChange, what_if
from webadmin.placement.services.instances import current_ring, drain_instance, size_ring
from webadmin.schedule.services.operation import Order

WORDS = [choice.name.lower() for choice in LoadBalancing]
WHOLE_NUMBERS = [name for name in LIMIT_NAMES if name not in ("load_balancing", "may_leave_zone")]


class Command(BaseCommand):
    """One subcommand per question or order; each prints JSON."""

    help = "Show or change how datasets are placed, say what a change would move, draw how placement works."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the subcommands."""
        parts = parser.add_subparsers(dest="part", required=True)
        show = parts.add_parser("show", help="the rules in force, one dataset per line")
        show.add_argument("--tenant", default=None)
        limits = parts.add_parser("limits", help="set limits for everybody or a tenant")
        limits.add_argument("--tenant", default="", help="default: everybody")
        for name in WHOLE_NUMBERS:
            limits.add_argument(f"--{name.replace('_', '-')}", type=int)
        limits.add_argument("--load-balancing", choices=WORDS)
        limits.add_argument("--may-leave-zone", choices=["yes", "no"])
        override = parts.add_parser("override", help="override or pin one dataset")
        override.add_argument("tenant")
        override.add_argument("dataset")
        override.add_argument("--tenant-shards", type=int)
        override.add_argument("--dataset-shards", type=int)
        override.add_argument("--load-balancing", choices=WORDS)
        override.add_argument("--shards", type=int, nargs="+", help="pin it to these shards")
        drain = parts.add_parser("drain", help="let an instance flush and leave")
        drain.add_argument("instance")
        size = parts.add_parser("ring-size", help="more shards, ahead of a growth")
        size.add_argument("shards", type=int)
        for order in (limits, override, drain, size):
            order.add_argument("--dry-run", action="store_true", help="only say what would move")
            order.add_argument("--why", default="", help="stands in the audit log")
        for taken in (limits, override):
            taken.add_argument("--take-back", action="store_true", help="take all of it back")
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
        answer = getattr(self, f"_{options['part'].replace('-', '_')}")
        try:
            for line in answer(options):
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

    def _limits(self, options: dict[str, Any]) -> list[Any]:
        values = _given(options, [*WHOLE_NUMBERS, "load_balancing"])
        if options["may_leave_zone"] is not None:
            values["may_leave_zone"] = options["may_leave_zone"] == "yes"
        _check_take_back(values, options)
        return [change_limits(tenant=options["tenant"], values=values or None, order=_order(options)).to_json()]

    def _override(self, options: dict[str, Any]) -> list[Any]:
        values = _given(options, ["tenant_shards", "dataset_shards", "load_balancing", "shards"])
        _check_take_back(values, options)
        place = {"tenant": options["tenant"], "dataset": options["dataset"]}
        return [change_override(**place, values=values or None, order=_order(options)).to_json()]

    def _drain(self, options: dict[str, Any]) -> list[Any]:
        if options["dry_run"]:
            return [what_if(FleetChange(remove=(options["instance"],))).to_json()]
        order = _order(options)
        return [{"changed": drain_instance(options["instance"], actor=order.actor, reason=order.why)}]

    def _ring_size(self, options: dict[str, Any]) -> list[Any]:
        before, order = current_ring(), _order(options)
        if options["dry_run"]:
            return [what_if(FleetChange(shards=max(options["shards"], before.shards))).to_json()]
        after = size_ring(options["shards"], actor=order.actor, reason=order.why)
        return [{"changed": after.version != before.version, "shards": after.shards}]

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


def _given(options: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return {name: options[name] for name in names if options[name] is not None}


def _check_take_back(values: dict[str, Any], options: dict[str, Any]) -> None:
    if bool(values) == options["take_back"]:
        raise CommandError("give values to set, or --take-back to take back what was set")


def _order(options: dict[str, Any]) -> Order:
    return Order(actor=f"command:{getpass.getuser()}", why=options["why"], is_dry_run=options["dry_run"])
