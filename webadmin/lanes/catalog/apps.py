"""This app owns the versioned catalog: repositories, branches, tags, commits, and what is staged on branches."""

from django.apps import AppConfig


class CatalogConfig(AppConfig):
    name = "webadmin.lanes.catalog"
    label = "catalog"
    verbose_name = "Catalog"

    def ready(self) -> None:
        from webadmin.lanes.catalog.compact_lane import CatalogLane
        from webadmin.schedule.lanes import register

        register(CatalogLane())
