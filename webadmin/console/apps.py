"""The app of the front page and the theme of all pages; it has no models."""

from django.apps import AppConfig

from webadmin.adminkit.navigation import Group, Link


class ConsoleConfig(AppConfig):
    """Django's name for this app."""

    name = "webadmin.console"
    label = "console"
    verbose_name = "Console"
    navigation = (
        Group(
            0,
            "",
            [
                Link("Overview", "dashboard", "admin:index"),
                Link("Progress", "trending_up", "progress-page"),
                Link("Flame graph", "local_fire_department", "flame-page"),
                Link("Why is nothing happening?", "help", "standstill-page"),
            ],
        ),
        Group(
            90,
            "Rules",
            [
                Link("Periodic tasks", "update", "django_celery_beat.periodictask"),
            ],
        ),
        Group(
            99,
            "Access",
            [
                Link("API", "api", "docs"),
            ],
        ),
    )

    def ready(self) -> None:
        """Check the settings of each new connection to the database."""
        from django.db.backends.signals import connection_created

        from webadmin.base.database.durability import read_at_connection

        connection_created.connect(read_at_connection, dispatch_uid="durability")
