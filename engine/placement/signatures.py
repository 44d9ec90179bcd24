"""Signatures of documents in the object store: whoever can write there must not decide where pushes are sent.

A signed document is the protobuf message and, as one more field of it, an HMAC-SHA256 of the object's key and the
message. Builds that know no signatures skip the field. The keys are those that all Django processes share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.core.keyed_digests import DIGEST_BYTES, is_signed, keyed_digest
from engine.placement.errors import UnsignedDocument
from engine.storage.model import ObjectStore

PURPOSE = "placement document"
FIELD = b"\xc2\x3e\x20"
"""Field 1000, length-delimited, 32 bytes: no message of ours has a field of that number."""
SIGNATURE_BYTES = len(FIELD) + DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class SignedStore:
    """An object store whose documents are signed; ``keys`` begin with the one that signs, the others are read, too."""

    store: ObjectStore
    keys: Sequence[str]

    def get(self, key: str) -> bytes:
        """Return a document without its signature. Raises UnsignedDocument, ObjectNotFound, StorageError."""
        data = self.store.get(key)
        document, field, digest = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:-DIGEST_BYTES], data[-DIGEST_BYTES:]
        if field != FIELD or not is_signed(digest, self.keys, PURPOSE, key.encode(), document):
            raise UnsignedDocument(
                f"{key} has no valid signature: it was written by somebody without LITHIFY_TOKEN_KEYS, or by a build "
                "that does not sign"
            )
        return document

    def put(self, key: str, document: bytes) -> None:
        """Write a document, replacing any of this key."""
        self.store.put(key, self._signed(key, document))

    def create(self, key: str, document: bytes) -> bool:
        """Write a document if the key is free; see ``ObjectStore.create``."""
        return self.store.create(key, self._signed(key, document))

    def _signed(self, key: str, document: bytes) -> bytes:
        return document + FIELD + keyed_digest(self.keys[0], PURPOSE, key.encode(), document)
