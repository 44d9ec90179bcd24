"""Django app that owns the records of Prometheus blocks in buckets and of their compaction."""

from django.apps import AppConfig

from webadmin.adminkit.navigation import Group, Link


class TsdbConfig(AppConfig):
    name = "webadmin.lanes.tsdb"
    label = "tsdb"
    verbose_name = "Prometheus blocks"
    navigation = (
        Group(
            30,
            "Prometheus blocks",
            [
                Link("Buckets", "inventory", "tsdb.bucket"),
                Link("Tenants and intervals", "calendar_month", "tsdb.buckettenant"),
                Link("Groups", "join_inner", "tsdb.group"),
                Link("Blocks of buckets", "deployed_code", "tsdb.block"),
                Link("Quarantined blocks", "coronavirus", "tsdb.blockquarantine"),
                Link("Outbox", "outbox", "tsdb.outboxstep"),
            ],
        ),
    )

    def ready(self) -> None:
        from webadmin.base.access.store_places import register_stores
        from webadmin.lanes.tsdb.merge_lane import TsdbLane
        from webadmin.lanes.tsdb.stores import bucket_stores
        from webadmin.schedule.lanes import register

        register(TsdbLane())
        register_stores(bucket_stores)
