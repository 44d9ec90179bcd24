"""The app of counts of arrivals and completions, aggregated from the command log."""

from __future__ import annotations

from django.apps import AppConfig

from webadmin.adminkit.navigation import Group, Link


class ProgressConfig(AppConfig):
    """Django's name for this app."""

    name = "webadmin.progress"
    label = "progress"
    navigation = (
        Group(
            12,
            "Schedule",
            [
                Link("Parked jobs", "inventory_2", "progress.parkedjob"),
            ],
        ),
    )
