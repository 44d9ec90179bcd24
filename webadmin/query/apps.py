"""This app owns no rows: it answers questions about profiles, over HTTP and by a command."""

from django.apps import AppConfig


class QueryConfig(AppConfig):
    name = "webadmin.query"
    label = "query"
    verbose_name = "Questions"
