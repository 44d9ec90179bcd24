"""``manage.py up``: all of Lithify on this machine, in one terminal."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connections

from engine.settings.base import is_set
from webadmin.embedded.addresses import free_port
from webadmin.embedded.errors import HomeInUse, ProgramFailed, RedisNotFound
from webadmin.embedded.process_log import ProcessLog
from webadmin.embedded.stack import StackSettings, describe_stack
from webadmin.embedded.stack_home import Login, locked_home, prepare_login, prepare_worker_credential
from webadmin.embedded.supervisor import STOP_SIGNALS, Supervisor

PORT_DEFAULT = 8000


class Command(BaseCommand):
    """Start every process, keep them running, stop them in order on Ctrl-C."""

    help = "Run the whole stack on this machine: one log, clean stop on Ctrl-C."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the port."""
        parser.add_argument("--port", type=int, help=f"of the web process (default {PORT_DEFAULT}, or a free one)")

    def handle(self, *args: Any, port: int | None, **options: Any) -> None:
        """Prepare the database, start the programs, and supervise them until a signal arrives."""
        try:
            with locked_home(settings.HOME):
                self._run(port)
        except (HomeInUse, ProgramFailed, RedisNotFound) as error:
            raise CommandError(str(error)) from error
        except OperationalError as error:
            raise CommandError(f"the database does not answer: {str(error).strip()}; check DATABASE_URL") from error
        except KeyboardInterrupt:
            raise CommandError("stopped before anything was started", returncode=130) from None

    def _run(self, port: int | None) -> None:
        call_command("migrate", interactive=False, verbosity=0)
        login = prepare_login(settings.HOME)
        stack = StackSettings(
            home=settings.HOME,
            web_port=port or free_port(PORT_DEFAULT),
            object_store_url=settings.OBJECT_STORE_URL,
            worker_credential=prepare_worker_credential(settings.HOME),
            broker_url=settings.BROKER_URL if is_set("BROKER_URL") else "",
        )
        connections.close_all()
        programs = describe_stack(stack)
        log = ProcessLog(sys.stdout, [program.name for program in programs])
        supervisor = Supervisor(programs, log)
        with _stopped_by_signals(supervisor):
            if supervisor.start():
                self._print_addresses(log, stack, login)
                supervisor.watch()
            log.say("stopping (once more to stop at once)")
            supervisor.stop()

    def _print_addresses(self, log: ProcessLog, stack: StackSettings, login: Login) -> None:
        password = f"in {login.password_file}" if login.password else "the one you chose"
        log.say("")
        log.say(f"Lithify is up: {stack.address}/admin/   login: {login.name}   password: {password}")
        log.say(f"API: {stack.address}/api/docs/   objects: {stack.object_store_url}   stop with Ctrl-C")
        log.say("")


@contextmanager
def _stopped_by_signals(supervisor: Supervisor) -> Iterator[None]:
    before = {number: signal.signal(number, lambda *_: supervisor.request_stop()) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
