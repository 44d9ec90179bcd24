"""Django app of the ingest path: receiving profiles, building segments, and the settings for both."""

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
                Link("Push limits", "input", "ingest.pushlimitchange"),
            ],
        ),
    )
