"""The ID of a profile: a digest of tenant, labels and content, so that a retried push has the same ID."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import fields

import numpy as np

from engine.formats.pprof.pprof_model import Functions, Locations, Mappings, Profile, Samples
from engine.formats.profile_block.model import Label, Labels
from engine.ingest.segments.label_memory import remembered

ID_BYTES = 16
PERSON = b"lithify-profile"
"""Personalisation of the hash, so that other digests of the same content differ."""
WIDTHS = (1, 2, 4, 8)
"""Byte widths of integers in a digested column."""


def profile_id(tenant: str, labels: Iterable[Label], profile: Profile) -> bytes:
    """Return the 16-byte ID of a normalised profile: equal for equal tenant, labels and content, on every machine."""
    digest = hashlib.blake2b(digest_size=ID_BYTES, person=PERSON)
    digest.update(sender_bytes(tuple(labels), tenant))
    for part in _content_parts(profile):
        digest.update(_part(part))
    return digest.digest()


@remembered
def sender_bytes(labels: Labels, tenant: str) -> bytes:
    """Return the digested bytes of tenant and labels."""
    texts = [tenant, *(text for label in sorted(labels) for text in label)]
    return b"".join(_part(text.encode()) for text in texts)


def _part(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def _content_parts(profile: Profile) -> Iterator[bytes]:
    pairs = [*profile.sample_types, profile.period_type]
    numbers = [profile.time_ns, profile.duration_ns, profile.period, *(ref for pair in pairs for ref in pair)]
    yield struct.pack(f"<{len(numbers)}q", *numbers)
    yield struct.pack(f"<{len(profile.strings)}Q", *map(len, profile.strings))
    yield b"".join(profile.strings)
    for table in (profile.samples, profile.mappings, profile.locations, profile.functions):
        yield from _column_bytes(table)


def _column_bytes(table: Samples | Mappings | Locations | Functions) -> Iterator[bytes]:
    """Yield each column as a width byte (1, 2, 4 or 8) and its numbers in that width, the smallest that fits.

    Most numbers are small, and the cost of an ID depends on the digested bytes. Negative numbers have 8 bytes.
    """
    for field in fields(table):
        numbers = getattr(table, field.name).astype(np.uint64)
        highest = int(numbers.max(initial=0))
        width = next(width for width in WIDTHS if highest < 1 << 8 * width)
        yield bytes([width]) + numbers.astype(f"<u{width}").tobytes()
