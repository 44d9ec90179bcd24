"""The ring for distributors: from the database, from the object store while that is unavailable, else the last one."""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import Error as AnyDatabaseError

from engine.core.errors import LithifyError
from engine.placement.errors import UnsignedDocument
from engine.placement.publication import load_ring, publish_ring
from engine.placement.ring import EMPTY_RING, Ring
from engine.placement.signatures import SignedStore
from engine.storage.model import ObjectStore
from webadmin.placement.services.instances import current_ring

log = logging.getLogger(__name__)


def read_ring(store: ObjectStore, *, last: Ring = EMPTY_RING) -> Ring:
    """Return the ring in force, or the newest available one; ``last`` is the one the caller has. Never raises.

    It is the same object as ``last`` if nothing newer was found, so that a caller detects changes cheaply.
    """
    found = _from_database()
    if found is None:
        found = _from_store(store)
    return last if found is None or found.version <= last.version else found


def publish_current_ring(store: ObjectStore) -> bool:
    """Update the store's copy to the database's ring; return False if it was current. Errors of the store propagate."""
    ring, signed = current_ring(), SignedStore(store, settings.TOKEN_KEYS)
    try:
        known = load_ring(signed)
    except UnsignedDocument as error:
        log.warning("ring_replaced error=%s", error)
        known = None
    if known is not None and known.version >= ring.version:
        return False
    publish_ring(signed, ring)
    return True


def _from_database() -> Ring | None:
    try:
        return current_ring()
    except AnyDatabaseError as error:
        log.warning("ring_not_read from=database error=%s", error)
    except LithifyError as error:
        log.error("ring_not_read from=database error=%s", error)
    return None


def _from_store(store: ObjectStore) -> Ring | None:
    try:
        return load_ring(SignedStore(store, settings.TOKEN_KEYS))
    except LithifyError as error:
        log.warning("ring_not_read from=store error=%s", error)
        return None
