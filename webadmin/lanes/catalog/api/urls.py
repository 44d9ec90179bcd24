"""The URLs of the catalog's API; every response below them has the form of the SDK."""

from __future__ import annotations

import re
from collections import defaultdict

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from webadmin.lanes.catalog.api.operation_view import Operation, operation_view, unknown_path
from webadmin.lanes.catalog.api.operations import OPERATIONS

WITH_SLASHES = {"branch", "ref", "tag", "left", "right", "commit"}
"""Names that may contain slashes, or that are refused with a message if they do; the SDK sends slashes encoded."""


class Anything(StringConverter):
    """Path converter for any text, including slashes and line ends, so that every path gets a response in one form."""

    regex = "(?s:.+)"


register_converter(Anything, "anything")


def _pattern(template: str) -> str:
    return re.sub(
        r"\{(\w+)\}", lambda name: f"<{'anything' if name[1] in WITH_SLASHES else 'str'}:{name[1]}>", template
    )


def _by_path() -> dict[str, dict[str, Operation]]:
    found: dict[str, dict[str, Operation]] = defaultdict(dict)
    for operation in OPERATIONS:
        found[operation.path][operation.method] = operation
    # A name may match the segments after it, so the longest path is tried first.
    return dict(sorted(found.items(), key=lambda each: -each[0].count("/")))


urlpatterns = [
    *(path(_pattern(template), operation_view(operations)) for template, operations in _by_path().items()),
    path("<anything:path>", unknown_path),
]
