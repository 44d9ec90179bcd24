"""Owns no state in the database: it starts the processes that do."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """Commands that run the whole of Lithify on this machine."""

    name = "webadmin.console"
    label = "console"
    verbose_name = "Console"

    def ready(self) -> None:
        """Look at the settings of each new connection to the database."""
        from django.db.backends.signals import connection_created

        from webadmin.database.durability import read_at_connection

        connection_created.connect(read_at_connection, dispatch_uid="durability")
