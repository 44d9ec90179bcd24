"""Keyed digests (HMAC-SHA256), with which the service authenticates data that it wrote itself.

All processes share a list of keys, the newest first. The first one signs and all of them verify, so keys can rotate.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

DIGEST_BYTES = hashlib.sha256().digest_size


def keyed_digest(key: str, purpose: str, *parts: bytes) -> bytes:
    """Return the HMAC-SHA256 (32 bytes) of ``parts`` under ``key``.

    A digest made for one ``purpose`` is not valid for another. Each part is prefixed with its length, so that two
    different lists of parts never have the same input.
    """
    signed = b"".join(len(part).to_bytes(8, "big") + part for part in (purpose.encode(), *parts))
    return hmac.new(key.encode(), signed, hashlib.sha256).digest()


def is_signed(digest: bytes, keys: Sequence[str], purpose: str, *parts: bytes) -> bool:
    """Return whether ``digest`` was made with one of ``keys``; digests are compared in constant time."""
    return any(hmac.compare_digest(digest, keyed_digest(key, purpose, *parts)) for key in keys)
