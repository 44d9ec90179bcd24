"""Read small JSON objects of a bucket with limits. Their content is untrusted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from engine.core.errors import BadObject, LimitExceeded, UnknownFormat
from engine.protocol.errors import InvalidMessage
from engine.protocol.fields import Fields

VERSION = 1
TEXT_MAX = 64 << 10
TIME_MAX = 1 << 40
"""Limit of times in Unix seconds: far above any clock, and safe to add to."""

_Result = TypeVar("_Result")


def read_json(data: bytes, section: str, bytes_max: int, read: Callable[[Fields], _Result]) -> _Result:
    """Return ``read`` applied to a JSON object of version 1.

    Raises a BadObject that names ``section`` and the field.
    """
    if len(data) > bytes_max:
        raise LimitExceeded(section, -1, f"{len(data)} bytes exceed the limit of {bytes_max}")
    try:
        fields = Fields.of(json.loads(data.decode()), section)
        version = fields.integer("version", 0, TIME_MAX)
        if version != VERSION:
            raise UnknownFormat(section, -1, f"version {version} is unknown, expected {VERSION}")
        return read(fields)
    except InvalidMessage as error:
        raise BadObject(section, -1, str(error)) from error
    except (ValueError, RecursionError) as error:
        raise BadObject(section, -1, f"not JSON: {error}") from error
