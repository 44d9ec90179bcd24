"""Fencing tokens on the wire: a command index, signed for one job and one credential.

The form is ``<index>.<key id>.<signature>`` in URL-safe text. The key id is a short fingerprint of the signing key, so
that keys can rotate: the first key signs, all keys verify.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence

from engine.core.keyed_digests import keyed_digest
from engine.protocol.errors import InvalidToken

INDEX_MAX = (1 << 63) - 1
PURPOSE = "fencing token"
SIGNATURE_BYTES = 16
_KEY_ID_DIGITS = 8
_FORM = re.compile(rf"([1-9][0-9]{{0,18}})\.([0-9a-f]{{{_KEY_ID_DIGITS}}})\.([A-Za-z0-9_-]{{22}})")


class TokenCodec:
    """Encodes and decodes tokens with a list of keys, the newest first."""

    def __init__(self, keys: Sequence[str]) -> None:
        if not keys or not all(keys):
            raise ValueError("fencing tokens require at least one key, and no empty key")
        self._keys = {_key_id(key): key for key in reversed(keys)}
        self._signing = keys[0]

    def encode(self, *, job: str, index: int, credential: str) -> str:
        """Return the token with which a credential may report on a job."""
        assert 0 < index <= INDEX_MAX
        return f"{index}.{_key_id(self._signing)}.{_sign(self._signing, job, index, credential)}"

    def decode(self, token: str, *, job: str, credential: str) -> int:
        """Return the command index of a token; raise InvalidToken unless ``encode`` wrote it for the same arguments."""
        match = _FORM.fullmatch(token)
        key = self._keys.get(match[2]) if match else None
        if match is None or key is None or int(match[1]) > INDEX_MAX:
            raise InvalidToken("not a token of this service")
        index = int(match[1])
        if not hmac.compare_digest(_sign(key, job, index, credential), match[3]):
            raise InvalidToken("a token of another job or credential")
        return index


def _key_id(key: str) -> str:
    return hashlib.sha256(b"fencing key" + key.encode()).hexdigest()[:_KEY_ID_DIGITS]


def _sign(key: str, job: str, index: int, credential: str) -> str:
    digest = keyed_digest(key, PURPOSE, job.encode(), credential.encode(), str(index).encode())
    return base64.urlsafe_b64encode(digest[:SIGNATURE_BYTES]).rstrip(b"=").decode()
