"""The encoding of an object as identity and payload of a catalog entry."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from engine.formats.ranges.errors import InvalidRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectEntry:
    """An object: address and size of its bytes, checksum (ETag), time of writing (Unix seconds)."""

    address: str
    size: int
    checksum: str
    written_at: float
    content_type: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    is_relative: bool = True

    @property
    def identity(self) -> bytes:
        """Return a hash (16 bytes) of all but address and time; objects with equal identity are unchanged."""
        document = json.dumps(
            [self.size, self.checksum, self.content_type, sorted(self.metadata.items())],
            ensure_ascii=True,
            separators=(",", ":"),
        )
        return hashlib.sha256(document.encode()).digest()[:16]

    def to_payload(self) -> bytes:
        """Return the payload of the object; equal objects give equal bytes."""
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
        """Return the object of a payload; unknown members are ignored. Raises InvalidRecord."""
        try:
            document = json.loads(payload)
            known = {name: document[name] for name in cls.__dataclass_fields__}
            entry = cls(**known)
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidRecord(f"the payload does not describe an object: {error}") from error
        return entry
