"""This app owns the timelines of tables: data sources, segments, the state of every chunk, tasks, manifests."""

from django.apps import AppConfig


class TimelineConfig(AppConfig):
    name = "webadmin.timeline"
    label = "timeline"
    verbose_name = "Tables"

    def ready(self) -> None:
        from webadmin.schedule.lanes import register
        from webadmin.timeline.tables_lane import TablesLane

        register(TablesLane())
