"""The app without rows for managing users and credentials, in the admin and over REST."""

from django.apps import AppConfig

from webadmin.adminkit.navigation import Group, Link


class AccountsConfig(AppConfig):
    name = "webadmin.accounts"
    label = "accounts"
    verbose_name = "Users and access"
    navigation = (
        Group(
            22,
            "Profiles",
            [
                Link("Tenants", "apartment", "access.tenant"),
            ],
        ),
        Group(
            95,
            "Access",
            [
                Link("Worker credentials", "key", "access.workercredential"),
                Link("Audit entries", "history", "access.auditentry"),
                Link("Operators", "person", "auth.user"),
                Link("Groups", "group", "auth.group"),
            ],
        ),
    )
