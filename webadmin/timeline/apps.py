"""This app owns the timelines of tables: data sources, segments, the state of every chunk, tasks, manifests."""

from django.apps import AppConfig


class TimelineConfig(AppConfig):
    name = "webadmin.timeline"
    label = "timeline"
    verbose_name = "Tables"
