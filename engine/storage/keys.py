"""Validation of object keys; one rule for all stores, so that objects can move between a bucket and a folder."""

from __future__ import annotations

from engine.storage.model import InvalidKey

KEY_SIZE_MAX = 1024
"""Bytes of UTF-8: the limit of S3."""
PART_SIZE_MAX = 255
"""Bytes of UTF-8 between two slashes: the limit of common file systems."""
RESERVED_PART = ".lithify-unfinished"
"""Folder in which the local store keeps uncommitted files."""


def check_key(operation: str, key: str) -> str:
    """Return ``key``; raise InvalidKey with the reason if it is invalid."""
    fault = _fault(key)
    if fault:
        raise InvalidKey(operation, key, fault)
    return key


def check_prefix(operation: str, prefix: str) -> str:
    """Return the ``prefix`` of a listing; raise InvalidKey unless it is empty or the beginning of a valid key."""
    if prefix:
        check_key(operation, prefix + "x" if prefix.endswith(("/", ".")) else prefix)
    return prefix


def check_folder(operation: str, prefix: str) -> str:
    """Return ``prefix``; raise InvalidKey unless it is empty or names a folder, with a slash at the end."""
    if prefix and not prefix.endswith("/"):
        raise InvalidKey(operation, prefix, "the name of a folder must end with a slash")
    return check_prefix(operation, prefix)


def _fault(key: str) -> str:
    try:
        encoded = key.encode()
    except UnicodeEncodeError:
        return "the key is not valid text"
    if len(encoded) > KEY_SIZE_MAX:
        return f"the key is longer than {KEY_SIZE_MAX} bytes"
    if not key.isprintable() or "\\" in key:
        return "the key has control characters or a backslash"
    return _part_fault(encoded.split(b"/"))


def _part_fault(parts: list[bytes]) -> str:
    if any(part in (b"", b".", b"..") for part in parts):
        return "the key is empty or has an empty, '.' or '..' part"
    if any(len(part) > PART_SIZE_MAX for part in parts):
        return f"a part of the key is longer than {PART_SIZE_MAX} bytes"
    if parts[0] == RESERVED_PART.encode():
        return f"{RESERVED_PART} is reserved for unfinished writes"
    return ""
