"""The addresses of the catalog's API, below which nothing is answered in any other form than the SDK's."""

from __future__ import annotations

import re
from collections import defaultdict

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from webadmin.lanes.catalog.api.door import Operation, door, nowhere
from webadmin.lanes.catalog.api.operations import OPERATIONS

WITH_SLASHES = {"branch", "ref", "tag", "left", "right", "commit"}
"""Names that may hold slashes, or are told that they may not: the SDK sends them with these encoded."""


class Anything(StringConverter):
    """Any text, with slashes and line ends: whatever somebody asks for is answered in one form."""

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
    # A name may swallow what stands behind it, so the longest way is tried first.
    return dict(sorted(found.items(), key=lambda each: -each[0].count("/")))


urlpatterns = [
    *(path(_pattern(template), door(operations)) for template, operations in _by_path().items()),
    path("<anything:path>", nowhere),
]
