"""This app owns the versioned catalog: repositories, branches, tags, commits, and staged entries."""

from django.apps import AppConfig

from webadmin.adminkit.navigation import Group, Link


class CatalogConfig(AppConfig):
    name = "webadmin.lanes.catalog"
    label = "catalog"
    verbose_name = "Catalog"
    navigation = (
        Group(
            50,
            "Catalogs",
            [
                Link("Repositories", "library_books", "catalog.repository"),
                Link("Branches", "fork_right", "catalog.branch"),
                Link("Compactions", "compress", "catalog.compaction"),
            ],
        ),
    )

    def ready(self) -> None:
        from webadmin.base.access.store_places import register_imports
        from webadmin.lanes.catalog.compact_lane import CatalogLane
        from webadmin.lanes.catalog.imports import repository_imports
        from webadmin.schedule.lanes import register

        register(CatalogLane())
        register_imports(repository_imports)
