"""This app owns the way of a profile from its sender into a segment, and back to its reader."""

from django.apps import AppConfig


class ProfilesConfig(AppConfig):
    name = "webadmin.ingest"
    label = "ingest"
    verbose_name = "Ingest"
