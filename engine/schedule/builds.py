"""Compares builds: which of two nodes runs the newer one."""

from __future__ import annotations

from packaging.version import InvalidVersion, Version


def is_newer(build: str, than: str) -> bool:
    """Say whether a build is newer than another, both as nodes name them: versions are compared as versions.

    A name that is no version has no order: such a build counts as newer than every other one but itself.
    """
    try:
        return Version(build) > Version(than)
    except InvalidVersion:
        return build != than
