"""``manage.py act ACTION``: run any action of operators; prints the outcome as JSON."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from webadmin.base.actions.action import ACTIONS, outcome_json
from webadmin.base.actions.command import add_options, run_action


class Command(BaseCommand):
    """One subcommand per action."""

    help = "Run an action of operators, or preview it with --dry-run. Exit code 1 if it left something unchanged."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the actions with their fields as options."""
        parts = parser.add_subparsers(dest="operation", required=True, metavar="ACTION")
        for name, action in sorted(ACTIONS.items()):
            if action.has_command:
                part = parts.add_parser(name.replace("_", "-"), help=action.label, description=action.about)
                add_options(part, (*action.targets, *action.fields))

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the action."""
        outcome = outcome_json(run_action(ACTIONS[options["operation"].replace("-", "_")], options))
        self.stdout.write(json.dumps(outcome, default=str))
        if outcome.get("left"):
            raise SystemExit(1)
