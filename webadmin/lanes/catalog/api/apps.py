"""This app owns the tables of the catalog's API: the imports."""

from django.apps import AppConfig

from webadmin.adminkit.navigation import Group, Link


class CatalogApiConfig(AppConfig):
    name = "webadmin.lanes.catalog.api"
    label = "catalog_api"
    verbose_name = "Catalog API"
    navigation = (
        Group(
            51,
            "Catalogs",
            [
                Link("Imports", "input", "catalog_api.importrun"),
            ],
        ),
    )
