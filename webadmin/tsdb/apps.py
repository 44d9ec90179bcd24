"""This app owns what is known of Prometheus blocks in buckets, and of their compaction by interval."""

from django.apps import AppConfig


class TsdbConfig(AppConfig):
    name = "webadmin.tsdb"
    label = "tsdb"
    verbose_name = "Prometheus blocks"

    def ready(self) -> None:
        from webadmin.schedule.lanes import register
        from webadmin.tsdb.merge_lane import TsdbLane

        register(TsdbLane())
