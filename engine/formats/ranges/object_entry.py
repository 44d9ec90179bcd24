"""What an entry of an object catalog says about its object, as identity and payload."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from engine.formats.ranges.errors import InvalidRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectEntry:
    """An object: where its bytes lie, how many, their checksum (ETag), when it was written (unix seconds)."""

    address: str
    size: int
    checksum: str
    written_at: float
    content_type: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    is_relative: bool = True

    @property
    def identity(self) -> bytes:
        """Return what makes two objects the same: all but address and time (16 bytes)."""
        told = json.dumps(
            [self.size, self.checksum, self.content_type, sorted(self.metadata.items())],
            ensure_ascii=True,
            separators=(",", ":"),
        )
        return hashlib.sha256(told.encode()).digest()[:16]

    def to_payload(self) -> bytes:
        """Return the object as an entry's payload; equal objects give equal bytes."""
        document = {
            "address": self.address,
            "checksum": self.checksum,
            "content_type": self.content_type,
            "is_relative": self.is_relative,
            "metadata": self.metadata,
            "size": self.size,
            "written_at": self.written_at,
        }
        return json.dumps(document, ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_payload(cls, payload: bytes) -> ObjectEntry:
        """Return the object that a payload describes; an InvalidRecord if it describes none. Unknown words pass."""
        try:
            document = json.loads(payload)
            known = {name: document[name] for name in cls.__dataclass_fields__}
            entry = cls(**known)
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidRecord(f"the payload describes no object: {error}") from error
        return entry
