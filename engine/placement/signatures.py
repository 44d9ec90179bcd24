"""Signatures of documents in the object store: write access to it must not suffice to redirect pushes.

A signed document is a protobuf message with one more field, the HMAC-SHA256 of the object's key and the message.
Readers without support for signatures skip the field. All Django processes share the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.core.keyed_digests import DIGEST_BYTES, is_signed, keyed_digest
from engine.placement.errors import UnsignedDocument
from engine.storage.model import ObjectStore

PURPOSE = "placement document"
FIELD = b"\xc2\x3e\x20"
"""Field 1000, length-delimited, 32 bytes; no message uses this number otherwise."""
SIGNATURE_BYTES = len(FIELD) + DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class SignedStore:
    """An object store of signed documents; the first of ``keys`` signs, all of them verify."""

    store: ObjectStore
    keys: Sequence[str]

    def get(self, key: str) -> bytes:
        """Return a document without its signature. Raises UnsignedDocument, ObjectNotFound, StorageError."""
        data = self.store.get(key)
        document, field, digest = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:-DIGEST_BYTES], data[-DIGEST_BYTES:]
        if field != FIELD or not is_signed(digest, self.keys, PURPOSE, key.encode(), document):
            raise UnsignedDocument(
                f"{key} has no valid signature: it was written without a key of LITHIFY_TOKEN_KEYS, or by a build "
                "that does not sign"
            )
        return document

    def put(self, key: str, document: bytes) -> None:
        """Write a document, replacing any of this key."""
        self.store.put(key, self._signed(key, document))

    def create(self, key: str, document: bytes) -> bool:
        """Write a document unless the key exists; see ``ObjectStore.create``."""
        return self.store.create(key, self._signed(key, document))

    def _signed(self, key: str, document: bytes) -> bytes:
        return document + FIELD + keyed_digest(self.keys[0], PURPOSE, key.encode(), document)
