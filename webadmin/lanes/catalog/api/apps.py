"""This app owns what the catalog's API keeps for itself: the imports that clients wait for."""

from django.apps import AppConfig


class CatalogApiConfig(AppConfig):
    name = "webadmin.lanes.catalog.api"
    label = "catalog_api"
    verbose_name = "Catalog API"
