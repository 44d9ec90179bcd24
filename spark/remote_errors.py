"""Serialises an error on an executor as JSON and restores it on the driver.

Only errors of the engine are restored, from JSON arguments; neither code nor pickles are sent to the driver.
"""

from __future__ import annotations

import importlib
import json

from engine.core.errors import LithifyError
from spark.errors import UnitFailed

REASON_CHARS_MAX = 4000


def error_to_bytes(error: Exception) -> bytes:
    """Return an error as JSON."""
    return json.dumps(
        {
            "module": type(error).__module__,
            "class": type(error).__qualname__,
            "arguments": _plain(error.args) if isinstance(error, LithifyError) else None,
            "reason": str(error)[:REASON_CHARS_MAX],
            "object": str(getattr(error, "object_name", "") or getattr(error, "key", "")),
            "section": str(getattr(error, "section", "")),
            "offset": int(getattr(error, "offset", -1)),
        }
    ).encode()


def error_from_bytes(data: bytes) -> LithifyError:
    """Return the error of the engine, or a UnitFailed that describes any other error."""
    fields = json.loads(data)
    error_class = _own_class(fields["module"], fields["class"])
    if error_class is not None and fields["arguments"] is not None:
        return error_class(*fields["arguments"])
    return UnitFailed(fields["class"], fields["reason"], fields["object"], fields["section"], fields["offset"])


def _plain(arguments: tuple[object, ...]) -> list[object] | None:
    """Return the arguments if JSON preserves them, else None."""
    return list(arguments) if all(isinstance(one, str | int | float | None) for one in arguments) else None


def _own_class(module_name: str, class_name: str) -> type[LithifyError] | None:
    if not module_name.startswith("engine."):
        return None
    try:
        found = getattr(importlib.import_module(module_name), class_name, None)
    except ImportError:
        return None
    return found if isinstance(found, type) and issubclass(found, LithifyError) else None
