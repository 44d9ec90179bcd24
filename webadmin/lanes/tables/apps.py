"""This app owns the timelines of tables: data sources, segments, the state of every chunk, tasks, manifests."""

from django.apps import AppConfig


class TimelineConfig(AppConfig):
    name = "webadmin.lanes.tables"
    label = "tables"
    verbose_name = "Tables"

    def ready(self) -> None:
        from webadmin.lanes.tables.tables_lane import TablesLane
        from webadmin.schedule.lanes import register

        register(TablesLane())
