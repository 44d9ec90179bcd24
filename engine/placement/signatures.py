"""Signatures of documents in the object store: whoever can write there must not decide where pushes are sent.

A signed document is the protobuf message and, as one more field of it, an HMAC-SHA256 of the object's key and the
message. Builds that know no signatures skip the field. The keys are those that all Django processes share.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from engine.placement.errors import UnsignedDocument
from engine.storage.model import ObjectStore

PURPOSE = b"lithify placement document\0"
FIELD = b"\xc2\x3e\x20"
"""Field 1000, length-delimited, 32 bytes: no message of ours has a field of that number."""
SIGNATURE_BYTES = len(FIELD) + hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class SignedStore:
    """An object store whose documents are signed; ``keys`` begin with the one that signs, the others are read, too."""

    store: ObjectStore
    keys: Sequence[str]

    def get(self, key: str) -> bytes:
        """Return a document without its signature. Raises UnsignedDocument, ObjectNotFound, StorageError."""
        data = self.store.get(key)
        document, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
        if not any(hmac.compare_digest(signature, _signature(one, key, document)) for one in self.keys):
            raise UnsignedDocument(
                f"{key} has no valid signature: it was written by somebody without LITHIFY_TOKEN_KEYS, or by a build "
                "that does not sign"
            )
        return document

    def put(self, key: str, document: bytes) -> None:
        """Write a document, replacing any of this key."""
        self.store.put(key, document + _signature(self.keys[0], key, document))

    def create(self, key: str, document: bytes) -> bool:
        """Write a document if the key is free; see ``ObjectStore.create``."""
        return self.store.create(key, document + _signature(self.keys[0], key, document))


def _signature(key: str, name: str, document: bytes) -> bytes:
    # The name's length keeps a document from being read as the end of a name.
    signed = PURPOSE + len(name.encode()).to_bytes(4, "big") + name.encode() + document
    return FIELD + hmac.new(key.encode(), signed, hashlib.sha256).digest()
