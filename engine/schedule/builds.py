"""Compare the builds of nodes."""

from __future__ import annotations

from packaging.version import InvalidVersion, Version


def is_newer(build: str, than: str) -> bool:
    """Return whether a build is newer than another; names are compared as versions (PEP 440).

    A name that is not a version cannot be ordered; such a build counts as newer than every other build.
    """
    try:
        return Version(build) > Version(than)
    except InvalidVersion:
        return build != than
