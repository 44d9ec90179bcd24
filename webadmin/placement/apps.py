"""This app owns the fleet of segment writers and what decides which shard a profile belongs to."""

from django.apps import AppConfig


class PlacementConfig(AppConfig):
    name = "webadmin.placement"
    label = "placement"
    verbose_name = "Placement"
