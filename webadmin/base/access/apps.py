"""The app of identities: tenants, credentials and the audit log, to which the other apps refer."""

from django.apps import AppConfig


class AccessConfig(AppConfig):
    name = "webadmin.base.access"
    label = "access"
    verbose_name = "Access"

    def ready(self) -> None:
        from webadmin.base.access import openapi  # noqa: F401  (registers itself)
