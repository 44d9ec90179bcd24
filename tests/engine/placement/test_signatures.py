"""Documents in the object store: only what holders of the keys wrote, and where they wrote it, is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.placement.documents import decode_rules, encode_rules
from engine.placement.errors import UnsignedDocument
from engine.placement.model import PlacementRules
from engine.placement.signatures import SignedStore
from engine.storage import ObjectStore, open_store

RULES = PlacementRules(version=7, created_at_ms=1_000)
DOCUMENT = encode_rules(RULES)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path))


def test_keys_rotate(store: ObjectStore) -> None:
    SignedStore(store, ["old"]).put("rules", DOCUMENT)
    assert SignedStore(store, ["new", "old"]).get("rules") == DOCUMENT
    with pytest.raises(UnsignedDocument):
        SignedStore(store, ["new"]).get("rules")
    with pytest.raises(UnsignedDocument):
        SignedStore(store, []).get("rules")


@pytest.mark.parametrize("operation", ["put", "create"])
def test_any_other_byte_is_refused(store: ObjectStore, operation: str) -> None:
    signed = SignedStore(store, ["key"])
    getattr(signed, operation)("rules", DOCUMENT)
    whole = store.get("rules")
    assert signed.get("rules") == DOCUMENT
    for position in range(len(whole)):
        store.put("rules", whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(UnsignedDocument):
            signed.get("rules")
    for data in (b"", DOCUMENT, whole[:-1], whole + b"x", whole[1:]):
        store.put("rules", data)
        with pytest.raises(UnsignedDocument):
            signed.get("rules")


def test_a_document_is_good_under_its_own_key_only(store: ObjectStore) -> None:
    signed = SignedStore(store, ["key"])
    signed.put("ring", DOCUMENT)
    store.put("rules", store.get("ring"))
    with pytest.raises(UnsignedDocument):
        signed.get("rules")


def test_a_build_that_knows_no_signatures_reads_signed_documents(store: ObjectStore) -> None:
    SignedStore(store, ["key"]).put("rules", DOCUMENT)
    assert decode_rules(store.get("rules")) == RULES
