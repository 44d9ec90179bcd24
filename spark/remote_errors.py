"""Carries an error from an executor to the driver as text, and makes the same error of it again.

Only the engine's own errors come back as what they were, built from JSON arguments; code or pickles never travel back.
"""

from __future__ import annotations

import importlib
import json

from engine.core.errors import LithifyError
from spark.errors import UnitFailed

REASON_CHARS_MAX = 4000


def error_to_bytes(error: Exception) -> bytes:
    """Describe an error as JSON."""
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
    """Return the engine's error that was described, or a UnitFailed that tells of any other."""
    told = json.loads(data)
    error_class = _own_class(told["module"], told["class"])
    if error_class is not None and told["arguments"] is not None:
        return error_class(*told["arguments"])
    return UnitFailed(told["class"], told["reason"], told["object"], told["section"], told["offset"])


def _plain(arguments: tuple[object, ...]) -> list[object] | None:
    """Return the arguments if JSON gives them back as they are, else None."""
    return list(arguments) if all(isinstance(one, str | int | float | None) for one in arguments) else None


def _own_class(module_name: str, class_name: str) -> type[LithifyError] | None:
    if not module_name.startswith("engine."):
        return None
    try:
        found = getattr(importlib.import_module(module_name), class_name, None)
    except ImportError:
        return None
    return found if isinstance(found, type) and issubclass(found, LithifyError) else None
