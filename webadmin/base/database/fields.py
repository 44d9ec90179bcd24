"""Columns that sort by their UTF-8 bytes, on every database.

Planners and the database compare names, keys and ids; both must agree, whatever the locale of the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.expressions import Combinable

BYTE_COLLATIONS = {"postgresql": "C", "sqlite": "BINARY"}


if TYPE_CHECKING:
    CharField = models.CharField[str | Combinable, str]
else:  # it has no parameters at run time
    CharField = models.CharField


class ByteOrderedField(CharField):
    """Text that sorts and compares bytewise. Index it in ``Meta``: ``unique=True`` would add a second index."""

    def db_parameters(self, connection: BaseDatabaseWrapper) -> dict[str, Any]:
        parameters = super().db_parameters(connection)
        parameters["collation"] = BYTE_COLLATIONS[connection.vendor]
        return parameters


class UlidField(ByteOrderedField):
    """A 26-character ULID; bytewise order is time order."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("max_length", 26)
        super().__init__(**options)
