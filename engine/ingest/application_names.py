"""Parse the ``name`` of a push to ``/ingest``: ``app{tag=value,...}``.

Grammar: ``docs/reference/formats/profile-api.md``, "Name grammar". Values are neither quoted nor escaped: a value ends
at the next ``,`` or ``}`` and may contain ``=`` and ``{``. An unterminated last pair is dropped. Text after a ``}``
that follows a key without ``=`` is ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.ingest.model import Refused

NAME_LABEL = "__name__"
REASON = "bad_name"
_NAME = re.compile(r"[A-Za-z0-9_.\-/]+")
_KEY = re.compile(r"[A-Za-z0-9_.]+")


@dataclass(frozen=True, slots=True)
class ApplicationName:
    """An application and its tags, as sent."""

    name: str
    tags: dict[str, str]

    def normalised(self) -> str:
        """Return the name with sorted tags, ``app{}`` without tags."""
        return f"{self.name}{{{','.join(f'{key}={self.tags[key]}' for key in sorted(self.tags))}}}"


def parse_application_name(text: str) -> ApplicationName:
    """Parse ``app{tag=value,...}``. Raises Refused (reason ``bad_name``) for an invalid character."""
    name, _, rest = text.partition("{")
    tags = _tags(rest)
    name = tags.pop(NAME_LABEL, name.strip())
    if not _NAME.fullmatch(name):
        raise Refused(REASON, f"name: {name!r} is not an application name; letters, digits and _ . - / make one")
    return ApplicationName(name, tags)


def _tags(text: str) -> dict[str, str]:
    tags: dict[str, str] = {}
    key, value, in_value = "", "", False
    for character in text:
        if in_value:
            if character in ",}":
                tags[key] = value.strip()
                key, value, in_value = "", "", False
            else:
                value += character
        elif character == "}":
            break
        elif character == "=":
            key, in_value = _checked_key(key.strip()), True
        else:
            key += character if character != "," or key else ""
    return tags


def _checked_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise Refused(REASON, f"name: {key!r} is not a tag name; letters, digits, _ and . make one", label=key)
    return key
