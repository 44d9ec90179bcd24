"""ULIDs, the ids of blocks: 48 bits of Unix milliseconds and 80 bits of entropy in 26 Crockford base32 characters."""

from __future__ import annotations

import re
import secrets
from typing import NamedTuple

from engine.core.errors import BadBlockName

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LENGTH = 26
ENTROPY_BYTES = 10
TIME_MS_MAX = (1 << 48) - 1

_CANONICAL = re.compile(rf"[0-7][{ALPHABET}]{{{LENGTH - 1}}}")
_DIGITS = str.maketrans(ALPHABET, "0123456789ABCDEFGHIJKLMNOPQRSTUV")  # the digits that int(text, 32) accepts


class Ulid(NamedTuple):
    """The parts of a block id."""

    time_ms: int
    entropy: bytes


def parse(text: str) -> Ulid:
    """Parse an id in canonical form (26 upper-case characters); raise BadBlockName for any other text."""
    if not _CANONICAL.fullmatch(text):
        raise BadBlockName(text, "not a ULID (26 characters of Crockford base32, upper case)")
    number = int(text.translate(_DIGITS), 32)
    return Ulid(number >> 80, (number & ((1 << 80) - 1)).to_bytes(ENTROPY_BYTES, "big"))


def time_ms(text: str) -> int:
    """Return the time of an id in Unix milliseconds."""
    return parse(text).time_ms


def make(time_ms: int, entropy: bytes) -> str:
    """Return the id of a time in Unix milliseconds and 10 bytes of entropy; raise BadBlockName if either is invalid."""
    if not 0 <= time_ms <= TIME_MS_MAX or len(entropy) != ENTROPY_BYTES:
        raise BadBlockName(f"{time_ms}/{entropy.hex()}", "a ULID holds 48 bits of milliseconds and 10 bytes of entropy")
    number = time_ms << 80 | int.from_bytes(entropy, "big")
    return "".join(ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def first(time_ms: int) -> str:
    """Return the smallest id of a time, which is clamped to the range that ids can hold."""
    return make(min(max(time_ms, 0), TIME_MS_MAX), bytes(ENTROPY_BYTES))


def new(time_ms: int) -> str:
    """Return a new id of a time, with cryptographically random entropy."""
    return make(time_ms, secrets.token_bytes(ENTROPY_BYTES))
