"""Owns no state in the database: the front page, and the look of all pages."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """Django's name for this app."""

    name = "webadmin.console"
    label = "console"
    verbose_name = "Console"

    def ready(self) -> None:
        """Look at the settings of each new connection to the database."""
        from django.db.backends.signals import connection_created

        from webadmin.base.database.durability import read_at_connection

        connection_created.connect(read_at_connection, dispatch_uid="durability")
