"""Digests that only a holder of a key can make: with them the service recognises what it wrote itself.

Keys are those that all its processes share, the newest first. The first one signs and all are accepted, so that keys
can rotate.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

DIGEST_BYTES = hashlib.sha256().digest_size


def keyed_digest(key: str, purpose: str, *parts: bytes) -> bytes:
    """Return the HMAC-SHA256 of these parts under a key: 32 bytes.

    What is signed for one purpose is worth nothing for another. Each part is preceded by its length, so that no two
    different lists of parts have the same digest.
    """
    signed = b"".join(len(part).to_bytes(8, "big") + part for part in (purpose.encode(), *parts))
    return hmac.new(key.encode(), signed, hashlib.sha256).digest()


def is_signed(digest: bytes, keys: Sequence[str], purpose: str, *parts: bytes) -> bool:
    """Return whether one of these keys has made this digest; the time it takes tells nothing of how nearly."""
    return any(hmac.compare_digest(digest, keyed_digest(key, purpose, *parts)) for key in keys)
