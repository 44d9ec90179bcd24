"""What distributors prove themselves with to segment writers: derived from the keys that all Django processes share.

A distributor sends ``authorization_header()``; nothing has to be issued or stored, and keys rotate as the tokens' do.
"""

from __future__ import annotations

import functools
import hashlib
import hmac

from django.conf import settings

PURPOSE = b"lithify segment push"
PREFIX = "Bearer "


def authorization_header() -> str:
    """Return the value of ``Authorization`` for a push to a segment writer."""
    return PREFIX + _derived(settings.TOKEN_KEYS[0])


def is_authorized(header: str) -> bool:
    """Say whether the header was made with one of the keys in use."""
    given = header.removeprefix(PREFIX).encode()
    matches = [hmac.compare_digest(given, _derived(key).encode()) for key in settings.TOKEN_KEYS]
    return header.startswith(PREFIX) and any(matches)


@functools.lru_cache(maxsize=16)
def _derived(key: str) -> str:
    return hmac.new(key.encode(), PURPOSE, hashlib.sha256).hexdigest()
