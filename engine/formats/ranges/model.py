"""Types of the catalog: keys, entries, staged records, intervals of deleted keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from engine.formats.ranges.errors import InvalidEntryKey, InvalidRecord

KEY_BYTES_MAX = 1024
IDENTITY_BYTES_MAX = 64
PAYLOAD_BYTES_MAX = 1 << 20

Row = tuple[bytes, bytes, bytes]
"""Key, identity, payload: an entry, or a tombstone, whose identity and payload are empty."""


class Entry(NamedTuple):
    """A key and its value.

    Entries with equal ``identity`` are *unchanged*, even if their payloads differ (the identity of an object covers all
    but its address and time). ``payload`` is opaque here.
    """

    key: bytes
    identity: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class StagedRecord:
    """A change of one key in a token: a value, or a tombstone (empty identity).

    ``generation`` orders the changes of one token: a record overrides interval tombstones of lower generations.
    """

    key: bytes
    generation: int
    identity: bytes
    payload: bytes = b""

    @property
    def is_tombstone(self) -> bool:
        return not self.identity


@dataclass(frozen=True, slots=True)
class IntervalTombstone:
    """The deletion of all keys from ``start`` to ``end`` (exclusive; None: unbounded), at a ``generation``."""

    start: bytes
    end: bytes | None
    generation: int

    def covers(self, key: bytes) -> bool:
        """Return whether the interval contains the key."""
        return self.start <= key and (self.end is None or key < self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedToken:
    """A former staging token; ``position`` is highest for the newest, ``sealed_at`` is in Unix seconds."""

    token: str
    position: int
    sealed_at: float
    rows: int
    tombstones: int


Interval = tuple[bytes, bytes | None]
"""First key and end (exclusive; None: unbounded)."""


def key_of(text: str) -> bytes:
    """Return the key of a text. Raises InvalidEntryKey.

    Keys are not file names, so ``..``, slashes and control characters are allowed, and keys are never normalised.
    Rejected are empty keys, more than 1,024 bytes, NUL, and invalid Unicode.
    """
    try:
        key = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidEntryKey(f"the key has a lone surrogate at position {error.start}") from error
    return check_key(key)


def check_key(key: bytes) -> bytes:
    """Return the key of an entry. Raises InvalidEntryKey."""
    if not key:
        raise InvalidEntryKey("the key is empty")
    if len(key) > KEY_BYTES_MAX:
        raise InvalidEntryKey(f"the key has {len(key)} bytes of UTF-8, the maximum is {KEY_BYTES_MAX}")
    if 0 in key:
        raise InvalidEntryKey(f"the key has a NUL at byte {key.index(0)}")
    try:
        key.decode()
    except UnicodeDecodeError as error:
        raise InvalidEntryKey(f"the key is not UTF-8 at byte {error.start}") from error
    return key


def check_record(record: StagedRecord) -> StagedRecord:
    """Return a staged record. Raises InvalidEntryKey or InvalidRecord if it is invalid."""
    check_key(record.key)
    if len(record.identity) > IDENTITY_BYTES_MAX:
        raise InvalidRecord(f"the identity has {len(record.identity)} bytes, the maximum is {IDENTITY_BYTES_MAX}")
    if len(record.payload) > PAYLOAD_BYTES_MAX:
        raise InvalidRecord(f"the payload has {len(record.payload)} bytes, the maximum is {PAYLOAD_BYTES_MAX}")
    if record.is_tombstone and record.payload:
        raise InvalidRecord("a value requires an identity: a record without one is a tombstone")
    if record.generation < 0:
        raise InvalidRecord(f"the generation is {record.generation}, expected 0 or more")
    return record


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the first key after all that begin with ``prefix``, None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
