"""The documents of placement in a store, signed with the keys of this process."""

from __future__ import annotations

from django.conf import settings

from engine.placement.signatures import SignedStore
from engine.storage import ObjectStore


def signed(store: ObjectStore) -> SignedStore:
    """Return the store for reading and writing signed documents."""
    return SignedStore(store, settings.TOKEN_KEYS)
