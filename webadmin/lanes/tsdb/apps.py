"""This app owns what is known of Prometheus blocks in buckets, and of their compaction by interval."""

from django.apps import AppConfig


class TsdbConfig(AppConfig):
    name = "webadmin.lanes.tsdb"
    label = "tsdb"
    verbose_name = "Prometheus blocks"

    def ready(self) -> None:
        from webadmin.lanes.tsdb.merge_lane import TsdbLane
        from webadmin.schedule.lanes import register

        register(TsdbLane())
