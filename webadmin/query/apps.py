"""Django app of profile queries over HTTP and by a command. It has no tables."""

from django.apps import AppConfig


class QueryConfig(AppConfig):
    name = "webadmin.query"
    label = "query"
    verbose_name = "Questions"
