"""This app owns the identities that the rest refers to: tenants, workers' credentials and who did what."""

from django.apps import AppConfig


class AccessConfig(AppConfig):
    name = "webadmin.base.access"
    label = "access"
    verbose_name = "Access"

    def ready(self) -> None:
        from webadmin.base.access import openapi  # noqa: F401  (registers itself)
