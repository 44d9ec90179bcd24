"""Django app that owns the timelines of tables: data sources, segments, chunks, tasks, manifests."""

from django.apps import AppConfig

from webadmin.adminkit.navigation import Group, Link


class TimelineConfig(AppConfig):
    name = "webadmin.lanes.tables"
    label = "tables"
    verbose_name = "Tables"
    navigation = (
        Group(
            40,
            "Tables",
            [
                Link("Tables", "table_chart", "tables.datasource"),
                Link("Chunks", "view_timeline", "tables.chunk"),
                Link("Tasks", "join_inner", "tables.task"),
                Link("Files", "description", "tables.segment"),
                Link("Quarantined files", "coronavirus", "tables.badfile"),
                Link("Chunk overrides", "gavel", "tables.chunkoverride"),
            ],
        ),
    )

    def ready(self) -> None:
        from webadmin.base.access.store_places import register_stores
        from webadmin.lanes.tables.services.stores import table_stores
        from webadmin.lanes.tables.tables_lane import TablesLane
        from webadmin.schedule.lanes import register

        register(TablesLane())
        register_stores(table_stores)
