"""Finds out by trying what a store does with a conditional create."""

from __future__ import annotations

from uuid import uuid4

from engine.storage.model import ConditionalCreate, ConditionRefused, ObjectStore


def probe_create(store: ObjectStore) -> ConditionalCreate:
    """Create one scratch object twice and see which bytes are there at the end."""
    key = f"scratch/conditional-create/{uuid4().hex}"
    try:
        store.create(key, b"first")
        created_again = store.create(key, b"second")
        is_kept = store.get(key) == b"first"
    except ConditionRefused:
        return ConditionalCreate.REFUSED
    finally:
        store.delete(key)
    return ConditionalCreate.ENFORCED if is_kept and not created_again else ConditionalCreate.IGNORED
