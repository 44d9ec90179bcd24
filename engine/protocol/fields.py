"""Validated access to the fields of an untrusted JSON object; every error names the field."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.protocol.errors import InvalidMessage

COUNT_MAX = (1 << 63) - 1
SECONDS_MAX = 7 * 86_400.0
NAME_SHOWN_MAX = 64
_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one JSON object; ``path`` is its position in the message. Methods raise InvalidMessage."""

    path: str
    values: Mapping[str, Any]

    @classmethod
    def of(cls, data: object, path: str) -> Fields:
        """Return the fields of ``data``, which must be a JSON object."""
        if not isinstance(data, dict):
            raise InvalidMessage(path, "expected an object")
        return cls(path, data)

    def error(self, name: str, reason: str) -> InvalidMessage:
        """Return an error about a field."""
        return InvalidMessage(f"{self.path}.{name}", reason)

    def reject_unknown(self, known: Collection[str]) -> None:
        """Reject unknown fields: typos must not pass silently."""
        for name in self.values:
            if name not in known:
                raise self.error(name[:NAME_SHOWN_MAX], f"unknown field; the fields are {', '.join(sorted(known))}")

    def text(self, name: str, length_max: int, *, empty: bool = True, default: str = _MISSING) -> str:
        """Return text of valid Unicode without NUL, which every database and log can hold."""
        value = self._value(name, default)
        if not isinstance(value, str) or len(value) > length_max or "\0" in value or not _is_unicode(value):
            raise self.error(name, f"expected text of at most {length_max} characters without NUL")
        if not empty and not value:
            raise self.error(name, "must not be empty")
        return value

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """Return one of ``choices``."""
        value = self._value(name, _MISSING)
        if value not in choices:
            raise self.error(name, f"expected one of {', '.join(choices)}")
        return str(value)

    def integer(self, name: str, low: int, high: int, *, default: int = _MISSING) -> int:
        """Return an integer from ``low`` to ``high``, both included."""
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(name, f"expected an integer from {low} to {high}")
        return value

    def seconds(self, name: str) -> float:
        """Return a duration in seconds."""
        value = self._value(name, _MISSING)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not 0 <= value <= SECONDS_MAX:
            raise self.error(name, f"expected a number of seconds from 0 to {SECONDS_MAX:.0f}")
        return float(value)

    def data(self, name: str, size_max: int) -> bytes:
        """Return bytes that are encoded in base64."""
        value = self._value(name, _MISSING)
        try:
            decoded = base64.b64decode(value, validate=True) if isinstance(value, str) else None
        except (binascii.Error, ValueError):
            decoded = None
        if decoded is None or len(decoded) > size_max:
            raise self.error(name, f"expected at most {size_max} bytes in base64")
        return decoded

    def mapping(self, name: str) -> dict[str, Any]:
        """Return an object whose contents the caller validates."""
        value = self._value(name, _MISSING)
        if not isinstance(value, dict):
            raise self.error(name, "expected an object")
        return value

    def optional(self, name: str) -> Fields | None:
        """Return the fields of the object in this field, None if it is absent or null."""
        if self.values.get(name) is None:
            return None
        return Fields.of(self.values[name], f"{self.path}.{name}")

    def items(self, name: str, count_max: int, *, default: Sequence[Any] = _MISSING) -> Sequence[Any]:
        """Return the items of a list, which are not validated."""
        value = self._value(name, default)
        if not isinstance(value, list | tuple) or len(value) > count_max:
            raise self.error(name, f"expected a list of at most {count_max} items")
        return value

    def objects(self, name: str, count_max: int, *, default: Sequence[Any] = _MISSING) -> list[Fields]:
        """Return the objects in a list."""
        items = self.items(name, count_max, default=default)
        return [Fields.of(item, f"{self.path}.{name}[{position}]") for position, item in enumerate(items)]

    def _value(self, name: str, default: Any) -> Any:
        value = self.values.get(name, default)
        if value is _MISSING:
            raise self.error(name, "is missing")
        return value


def json_object(fields: Fields, name: str) -> dict[str, Any] | None:
    """Return an object whose contents the caller validates, None if it is absent or null."""
    return None if fields.values.get(name) is None else fields.mapping(name)


def truncate_text(text: str, length_max: int) -> str:
    """Return a text that ``Fields.text`` accepts: NUL and lone surrogates replaced, truncated to ``length_max``."""
    clean = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
    return clean if len(clean) <= length_max else clean[: length_max - 1] + "…"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
