"""``manage.py level_policy``: shows and changes level policies, the default or those of one tenant."""

from __future__ import annotations

import getpass
import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from engine.core.errors import LithifyError
from engine.lanes.profiles.jobs import KIND
from engine.lanes.profiles.plan.policy_rules import POLICY_RULES
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.services.change_level_policy import change_level_policy, policy_numbers
from webadmin.schedule.services.operation import Order


class Command(BaseCommand):
    """Show or change policies; one JSON object each."""

    help = "Show the level policies, or change the numbers that are given; with --dry-run say what would be planned."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options for the tenant and the numbers."""
        parser.add_argument("--lane", default=KIND)
        parser.add_argument("--level", type=int, help="without it: list all policies")
        parser.add_argument("--tenant", default="", help="default: everybody who has none of their own")
        parser.add_argument("--dry-run", action="store_true", help="only show what polls would plan")
        parser.add_argument("--why", default="", help="stands in the audit log")
        parser.add_argument("--as-everybody", action="store_true", help="take the tenant's own policy back")
        for name, rule in POLICY_RULES.items():
            parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=rule.meaning)

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the policies in force, or the changes."""
        if options["level"] is None:
            for row in LevelPolicy.objects.all():
                place = {"lane": row.lane, "level": row.level, "tenant": row.tenant}
                self.stdout.write(json.dumps(place | policy_numbers(row)))
            return
        values = {name: options[name] for name in POLICY_RULES if options[name] is not None}
        if bool(values) == options["as_everybody"]:
            raise CommandError("give numbers to set, or --as-everybody to take the tenant's own policy back")
        order = Order(actor=f"command:{getpass.getuser()}", why=options["why"], is_dry_run=options["dry_run"])
        try:
            outcome = change_level_policy(
                lane=options["lane"],
                level=options["level"],
                tenant=options["tenant"],
                values=values or None,
                order=order,
            )
        except LithifyError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(json.dumps(outcome.to_json()))
