"""Django app of the commands that start the processes of an installation. It has no tables."""

from django.apps import AppConfig


class EmbeddedConfig(AppConfig):
    """Commands that run all of Lithify on this machine, and check a deployment."""

    name = "webadmin.embedded"
    label = "embedded"
    verbose_name = "Embedded"
