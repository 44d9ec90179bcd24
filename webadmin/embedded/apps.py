"""Owns no state in the database: its commands start the processes that do."""

from django.apps import AppConfig


class EmbeddedConfig(AppConfig):
    """Commands that run the whole of Lithify on this machine, and look at how it is deployed."""

    name = "webadmin.embedded"
    label = "embedded"
    verbose_name = "Embedded"
