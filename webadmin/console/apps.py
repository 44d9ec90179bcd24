"""Owns no state in the database: it starts the processes that do."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """Commands that run the whole of Lithify on this machine."""

    name = "webadmin.console"
    label = "console"
    verbose_name = "Console"
