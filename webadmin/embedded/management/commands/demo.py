"""``manage.py demo``: compaction on this machine, from an empty store to the comparison before and after."""

from __future__ import annotations

import logging
import os
import signal
import sys
from argparse import ArgumentParser
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from rich.console import Console

from engine.core.errors import LithifyError
from webadmin.embedded.demo.home import demo_environment, wipe_home
from webadmin.embedded.demo.outcome import Outcome
from webadmin.embedded.demo.run import STACK_LOG, STEP_COUNT, Demonstration, DemoSettings
from webadmin.embedded.demo.steps import Steps
from webadmin.embedded.management.commands.up import PORT_DEFAULT
from webadmin.embedded.stack_home import locked_home

SEGMENTS = 300
RECORD_SECONDS = 8.0
LOG_LINES = 40
WIDTH_WITHOUT_TERMINAL = 150


class Command(BaseCommand):
    """Wipe the demonstration's home, then run again inside it, so that all settings are those of that home."""

    help = "Show the main job: many small profile objects become a few blocks, with the same answers."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the objects to compact, and the home folder."""
        parser.add_argument("--bucket", default="", help="folder or URL with objects to compact (it is only read)")
        parser.add_argument("--metadata", help="side file for segments without footer (default: beside the objects)")
        parser.add_argument("--home", help="folder of the demonstration, emptied at its start (default: .lithify/demo)")
        parser.add_argument(
            "--segments", type=int, default=SEGMENTS, help=f"push until there are so many (default {SEGMENTS})"
        )
        parser.add_argument("--keep-running", action="store_true", help="leave the stack running until Ctrl-C")
        parser.add_argument(
            "--record-seconds", type=float, default=RECORD_SECONDS, help=f"per program (default {RECORD_SECONDS:g})"
        )
        parser.add_argument("--age-seconds", type=int, help="merge remainders after so long (default 3 to 6 by level)")
        parser.add_argument("--recordings", help="folder of recorded profiles (default: .lithify/recordings)")
        parser.add_argument("--inside", action="store_true", help="used by the command itself: the home is prepared")

    def handle(self, *args: Any, inside: bool, **options: Any) -> None:
        """Run both halves; exit with 1 if the results differ or something was left behind."""
        try:
            if not inside:
                self._enter_home(options)
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            # The processes log to a file; this one shows steps instead.
            logging.getLogger().setLevel(logging.WARNING)
            with locked_home(settings.HOME):
                is_good = self._run(options)
        except LithifyError as error:
            raise CommandError(f"{error}{self._end_of_log() if inside else ''}") from error
        except KeyboardInterrupt:
            raise CommandError("stopped", returncode=130) from None
        if not is_good:
            sys.exit(1)

    def _enter_home(self, options: dict[str, Any]) -> None:
        """Replace this process by the same command with the settings of the emptied home."""
        home = Path(options["home"] or settings.HOME / "demo").resolve()
        wipe_home(home)
        command = [sys.executable, "-m", "django", "demo", "--inside"]
        command += ["--recordings", options["recordings"] or str(settings.HOME / "recordings")]
        command += ["--segments", str(options["segments"]), "--record-seconds", str(options["record_seconds"])]
        command += ["--bucket", options["bucket"]] if options["bucket"] else []
        command += ["--metadata", options["metadata"]] if options["metadata"] else []
        command += ["--age-seconds", str(options["age_seconds"])] if options["age_seconds"] is not None else []
        command += ["--keep-running"] if options["keep_running"] else []
        environment = demo_environment(dict(os.environ), home) | {"DJANGO_SETTINGS_MODULE": "webadmin.settings"}
        sys.stdout.flush()
        os.execve(sys.executable, command, environment)  # noqa: S606 - our own interpreter and command

    def _run(self, options: dict[str, Any]) -> bool:
        console = Console(width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL)
        demonstration = Demonstration(
            DemoSettings(
                home=settings.HOME,
                recordings=Path(options["recordings"] or settings.HOME / "recordings"),
                record_seconds=options["record_seconds"],
                segment_count=options["segments"],
                bucket=options["bucket"],
                metadata=options["metadata"],
                age_seconds=options["age_seconds"],
            ),
            Steps(console, STEP_COUNT),
        )
        with demonstration.compacted() as outcome:
            self._print_outcome(console, outcome)
            if options["keep_running"]:
                console.print(f"\n{demonstration.address}/admin/ stays up until Ctrl-C", highlight=False)
                flame_graph = f"{demonstration.address}{outcome.flame_path}"
                console.print(f"the flame graph: {flame_graph}", highlight=False, markup=False, soft_wrap=True)
                with suppress(KeyboardInterrupt):
                    signal.pause()
        self._print_next_steps(console, outcome)
        return outcome.is_good

    def _end_of_log(self) -> str:
        """Return the last log lines of the processes, and the path of the log."""
        log = settings.HOME / STACK_LOG
        if not log.exists():
            return ""
        lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return "\n".join(["", f"the processes' log {log} ends with:", *(f"    {line}" for line in lines)])

    def _print_outcome(self, console: Console, outcome: Outcome) -> None:
        if outcome.is_good:
            console.print("[bold green]The answers are equal.[/]")
            return
        if not outcome.are_equal:
            console.print("[bold red]The answers differ: this is a bug, please report it.[/]")
        if outcome.parked_jobs:
            console.print(f"[bold red]{outcome.parked_jobs} jobs were parked; their reasons are in the admin.[/]")
        if outcome.bad_objects:
            console.print(f"[bold red]{outcome.bad_objects} objects could not be registered.[/]")

    def _print_next_steps(self, console: Console, outcome: Outcome) -> None:
        home = min(str(settings.HOME), os.path.relpath(settings.HOME), key=len)
        console.print(
            "\nWhat next:\n"
            f"  LITHIFY_HOME={home} ./dev up\n"
            "      look at this result in the admin: blocks, where they came from, jobs, the command log\n"
            "      and where the time goes, as a flame graph (the port is what `up` says):\n"
            f"      http://127.0.0.1:{PORT_DEFAULT}{outcome.flame_path}\n"
            "  ./dev up\n"
            "      the whole stack with a home of its own (.lithify)\n"
            "  ./dev demo --bucket DIR\n"
            "      the same with objects that another program wrote; import_blocks does it for good\n"
            "  docs/\n"
            "      how it works, and a tour of the source",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
