"""Small JSON objects of a bucket, read with limits: whoever wrote them may be broken or hostile."""

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
"""Unix seconds; far beyond any clock, and far from overflowing one."""

_Answer = TypeVar("_Answer")


def read_json(data: bytes, section: str, bytes_max: int, read: Callable[[Fields], _Answer]) -> _Answer:
    """Return what ``read`` makes of a JSON object of version 1; BadObject names ``section`` and the field."""
    if len(data) > bytes_max:
        raise LimitExceeded(section, -1, f"{len(data)} bytes, at most {bytes_max} are read")
    try:
        fields = Fields.of(json.loads(data.decode()), section)
        version = fields.integer("version", 0, TIME_MAX)
        if version != VERSION:
            raise UnknownFormat(section, -1, f"version {version}, only {VERSION} is known")
        return read(fields)
    except InvalidMessage as error:
        raise BadObject(section, -1, str(error)) from error
    except (ValueError, RecursionError) as error:
        raise BadObject(section, -1, f"not JSON: {error}") from error
