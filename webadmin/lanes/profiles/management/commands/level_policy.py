"""``manage.py level_policy``: shows and changes level policies, the default or those of one tenant."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import replace
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from webadmin.base.actions.command import add_options, run_action
from webadmin.lanes.profiles.actions.policies import LANE, LEVEL, NUMBERS, SET_POLICY, TENANT
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.services.change_level_policy import policy_numbers


class Command(BaseCommand):
    """Show or change policies; one JSON object each."""

    help = "Show the level policies, or change the numbers that are given; with --dry-run say what would be planned."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options for the tenant and the numbers."""
        level = replace(LEVEL, is_required=False, about="without it: list all policies")
        add_options(parser, (LANE, level, TENANT, NUMBERS))
        parser.add_argument("--remove", action="store_true", help="remove the tenant's policy")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the policies in force, or the changes."""
        if options.get("level") is None:
            for row in LevelPolicy.objects.all():
                place = {"lane": row.lane, "level": row.level, "tenant": row.tenant}
                self.stdout.write(json.dumps(place | policy_numbers(row)))
            return
        numbers = NUMBERS.from_options(options)
        if bool(numbers) == options["remove"]:
            raise CommandError("give numbers to set, or --remove to remove the tenant's policy")
        outcome = run_action(SET_POLICY, options, {"numbers": numbers or None})
        self.stdout.write(json.dumps(outcome.to_json()))
