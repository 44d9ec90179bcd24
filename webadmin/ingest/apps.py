"""This app owns the way of a profile from its sender into a segment, and back to its reader."""

from django.apps import AppConfig

from webadmin.adminkit.navigation import Group, Link


class ProfilesConfig(AppConfig):
    name = "webadmin.ingest"
    label = "ingest"
    verbose_name = "Ingest"
    navigation = (
        Group(
            21,
            "Profiles",
            [
                Link("Pushes", "publish", "ingest.pushcount"),
            ],
        ),
        Group(
            81,
            "Rules",
            [
                Link("Limits of pushes", "input", "ingest.pushlimitchange"),
            ],
        ),
    )
