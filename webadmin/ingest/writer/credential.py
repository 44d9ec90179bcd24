"""Credentials of distributors for segment writers, derived from the keys that all Django processes share.

A distributor sends ``authorization_header(instance)``. Nothing is issued or stored, and keys rotate with those of the
tokens. A credential is valid for one instance and for one to two hours, which limits the use of an intercepted one.
"""

from __future__ import annotations

import functools
import hmac

from django.conf import settings

from engine.core.keyed_digests import keyed_digest
from webadmin.base.database.database_clock import database_clock_ms

PURPOSE = "segment push"
PREFIX = "Bearer "
VALID_SECONDS = 3600
"""Minimum validity of a credential in seconds; the maximum is twice as long."""
TOLERANCE_SECONDS = 300
"""Permitted clock difference of two processes in seconds; each uses the database clock as read last."""


def authorization_header(instance: str) -> str:
    """Return the value of ``Authorization`` for a push to the segment writer of this id."""
    expires_s = (database_clock_ms() // 1000 // VALID_SECONDS + 2) * VALID_SECONDS
    return f"{PREFIX}{expires_s}.{_derived(settings.TOKEN_KEYS[0], instance, expires_s)}"


def is_authorized(header: str, instance: str) -> bool:
    """Return whether the header was made for this instance with a key in use, and has not expired."""
    expires, _, given = header.removeprefix(PREFIX).partition(".")
    if not header.startswith(PREFIX) or not (expires.isascii() and expires.isdigit() and len(expires) <= 12):
        return False
    left_s = int(expires) - database_clock_ms() / 1000
    if not -TOLERANCE_SECONDS < left_s <= 2 * VALID_SECONDS + TOLERANCE_SECONDS:
        return False
    derived = [_derived(key, instance, int(expires)) for key in settings.TOKEN_KEYS]
    return any(hmac.compare_digest(given.encode(), one.encode()) for one in derived)


@functools.lru_cache(maxsize=1024)
def _derived(key: str, instance: str, expires_s: int) -> str:
    return keyed_digest(key, PURPOSE, instance.encode(), str(expires_s).encode()).hex()
