"""Request bodies that may be gzipped, unpacked within a bound: a bomb costs its sender a refusal and us a buffer.

ISA-L unpacks in less than half the time of zlib, which would be a fifth of what a push costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from isal import isal_zlib

_GZIP_WINDOW = 16 + isal_zlib.MAX_WBITS
_CHUNK = 1 << 18


class BodyTooLarge(Exception):
    """The body has more bytes than allowed, before or after it was unpacked; nothing of it was used."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"request body too large: more than {limit} bytes")


class BadGzip(Exception):
    """The body says it is gzip and is not, or ends early."""


class Readable(Protocol):
    """What a body is read from."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, empty at the end."""


def read_body(stream: Readable, *, gzipped: bool, limit: int) -> bytes:
    """Return the whole body, unpacked if it is gzipped. Raises BodyTooLarge or BadGzip."""
    parts: list[bytes] = []
    left = limit
    for part in _unpacked(stream) if gzipped else _chunks(stream):
        left -= len(part)
        if left < 0:
            raise BodyTooLarge(limit)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _chunks(stream: Readable) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK):
        yield chunk


def _unpacked(stream: Readable) -> Iterator[bytes]:
    """Unpack chunk by chunk, never holding more than one chunk beyond what was handed on."""
    inflater = isal_zlib.decompressobj(_GZIP_WINDOW)
    for chunk in _chunks(stream):
        waiting = chunk
        while waiting:
            try:
                yield inflater.decompress(waiting, _CHUNK)
            except isal_zlib.error as error:
                raise BadGzip(f"the body is not gzip: {error}") from error
            waiting = inflater.unconsumed_tail
            if inflater.eof:
                waiting = inflater.unused_data
                if waiting:
                    inflater = isal_zlib.decompressobj(_GZIP_WINDOW)
    if not inflater.eof:
        raise BadGzip("the gzip body ends early")
