"""The progress app owns the counts of what arrived and what was done, rolled up from the command log."""

from __future__ import annotations

from django.apps import AppConfig


class ProgressConfig(AppConfig):
    """Django's name for this app."""

    name = "webadmin.progress"
    label = "progress"
