"""The nouns of the catalog: keys, entries, staged records, intervals of deleted keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from engine.formats.ranges.errors import InvalidEntryKey, InvalidRecord

KEY_BYTES_MAX = 1024
IDENTITY_BYTES_MAX = 64
PAYLOAD_BYTES_MAX = 1 << 20

Row = tuple[bytes, bytes, bytes]
"""Key, identity, payload: an entry, or with an empty identity a tombstone (its payload is empty, too)."""


class Entry(NamedTuple):
    """A key and its value.

    ``identity`` says when two values are the same (for objects: all but address and time of the last write);
    ``payload`` is opaque here. Entries of equal identity are *unchanged*, whatever their payloads.
    """

    key: bytes
    identity: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class StagedRecord:
    """A change of one key in a token: a value, or a tombstone (empty identity).

    ``generation`` orders the changes inside one token: a record hides an interval tombstone of a lower one.
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
    """All keys from ``start`` up to before ``end`` (None: without end) are deleted, as of ``generation``."""

    start: bytes
    end: bytes | None
    generation: int

    def covers(self, key: bytes) -> bool:
        """Return whether the key lies in the interval."""
        return self.start <= key and (self.end is None or key < self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedToken:
    """A former staging token: ``position`` counts up, so that the newest has the highest; time in unix seconds."""

    token: str
    position: int
    sealed_at: float
    rows: int
    tombstones: int


Interval = tuple[bytes, bytes | None]
"""From a key up to before another (None: without end)."""


def key_of(text: str) -> bytes:
    """Return the key that a caller writes as text; an InvalidEntryKey says what is wrong with it.

    Keys never name files, so ``..``, slashes anywhere and control characters are a matter of their owner; they are
    kept as they are, never normalised. Refused: empty, more than 1,024 bytes, NUL, what is no Unicode text.
    """
    try:
        key = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidEntryKey(f"the key has half a character (a lone surrogate) at position {error.start}") from error
    return check_key(key)


def check_key(key: bytes) -> bytes:
    """Return the key of an entry, or raise an InvalidEntryKey that says what is wrong with it."""
    if not key:
        raise InvalidEntryKey("the key is empty")
    if len(key) > KEY_BYTES_MAX:
        raise InvalidEntryKey(f"the key has {len(key)} bytes of UTF-8; {KEY_BYTES_MAX} are allowed")
    if 0 in key:
        raise InvalidEntryKey(f"the key has a NUL at byte {key.index(0)}")
    try:
        key.decode()
    except UnicodeDecodeError as error:
        raise InvalidEntryKey(f"the key is not UTF-8 at byte {error.start}") from error
    return key


def check_record(record: StagedRecord) -> StagedRecord:
    """Return a record that may be staged, or raise InvalidEntryKey or InvalidRecord."""
    check_key(record.key)
    if len(record.identity) > IDENTITY_BYTES_MAX:
        raise InvalidRecord(f"an identity of {len(record.identity)} bytes; {IDENTITY_BYTES_MAX} are allowed")
    if len(record.payload) > PAYLOAD_BYTES_MAX:
        raise InvalidRecord(f"a payload of {len(record.payload)} bytes; {PAYLOAD_BYTES_MAX} are allowed")
    if record.is_tombstone and record.payload:
        raise InvalidRecord("a value needs an identity: without one the record deletes its key")
    if record.generation < 0:
        raise InvalidRecord(f"a record of generation {record.generation}")
    return record


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the first key behind all that begin with ``prefix``; None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
