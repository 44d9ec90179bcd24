"""``manage.py advise``: the number of workers, memory and disk that the present load needs."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from engine.schedule.advice import Advice
from engine.schedule.progress import seconds_text
from webadmin.adminkit.formatting import size_text
from webadmin.progress.advice import advice_json, advice_now
from webadmin.progress.report import WINDOW_SECONDS, WINDOW_SECONDS_MAX

CLEAR_SECONDS = 3600
CLEAR_SECONDS_MAX = 30 * 86_400
SLOTS_PER_NODE_MAX = 256


class Command(BaseCommand):
    """Give advice on size."""

    help = "Say how many workers, how much memory and disk the present load needs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the window of the rates, and the targets."""
        parser.add_argument("--window", type=int, default=WINDOW_SECONDS, help="seconds over which arrivals are taken")
        parser.add_argument(
            "--clear", type=int, default=CLEAR_SECONDS, help="seconds in which the backlog is to be gone"
        )
        parser.add_argument("--slots", type=int, default=2, help="job slots of a node (NODE_CAPACITY)")
        parser.add_argument("--json", action="store_true", help="for programs")

    def handle(self, *args: Any, window: int, clear: int, slots: int, **options: Any) -> None:
        """Print the advice."""
        for name, value, low, high in (
            ("--window", window, 60, WINDOW_SECONDS_MAX),
            ("--clear", clear, 60, CLEAR_SECONDS_MAX),
            ("--slots", slots, 1, SLOTS_PER_NODE_MAX),
        ):
            if not low <= value <= high:
                raise CommandError(f"{name} {value}: {low} to {high}")
        advice = advice_now(window_seconds=window, clear_seconds=clear, slots_per_node=slots)
        if options["json"]:
            self.stdout.write(json.dumps(advice_json(advice), indent=2))
            return
        for line in advice_lines(advice, clear):
            self.stdout.write(line)


def advice_lines(advice: Advice, clear_seconds: int) -> list[str]:
    """Return the advice as sentences."""
    nodes = "1 node" if advice.nodes == 1 else f"{advice.nodes} nodes"
    return [
        f"{nodes} of {advice.slots_per_node} job slots: {advice.steady_slots:.2f} slots for what arrives, "
        f"{advice.backlog_slots:.2f} to clear the backlog in {seconds_text(clear_seconds)}.",
        f"Each node: {size_text(advice.memory_per_node)} of memory, "
        f"{size_text(advice.scratch_per_node)} of scratch disk.",
        f"The object store holds {size_text(advice.replaced_bytes)} of replaced objects until they are deleted.",
        *(f"Note: {note}." for note in advice.notes),
    ]
