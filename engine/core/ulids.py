"""ULIDs, the ids of blocks: 48 bits of unix milliseconds and 80 bits of entropy in 26 Crockford base32 characters."""

from __future__ import annotations

import re
import secrets
from typing import NamedTuple

from engine.core.errors import BadBlockName

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
LENGTH = 26
ENTROPY_BYTES = 10
TIME_MS_MAX = (1 << 48) - 1

_WRITTEN = re.compile(rf"[0-7][{ALPHABET}]{{{LENGTH - 1}}}")
_DIGITS = str.maketrans(ALPHABET, "0123456789ABCDEFGHIJKLMNOPQRSTUV")  # those of Python's numbers to base 32


class Ulid(NamedTuple):
    """A block id taken apart."""

    time_ms: int
    entropy: bytes


def parse(text: str) -> Ulid:
    """Take an id apart; BadBlockName unless it is exactly the 26 upper-case characters that ``make`` writes."""
    if not _WRITTEN.fullmatch(text):
        raise BadBlockName(text, "not a ULID (26 characters of Crockford base32, upper case)")
    number = int(text.translate(_DIGITS), 32)
    return Ulid(number >> 80, (number & ((1 << 80) - 1)).to_bytes(ENTROPY_BYTES, "big"))


def time_ms(text: str) -> int:
    """Return the unix milliseconds in an id."""
    return parse(text).time_ms


def make(time_ms: int, entropy: bytes) -> str:
    """Build an id from unix milliseconds and 10 bytes of entropy."""
    if not 0 <= time_ms <= TIME_MS_MAX or len(entropy) != ENTROPY_BYTES:
        raise BadBlockName(f"{time_ms}/{entropy.hex()}", "a ULID holds 48 bits of milliseconds and 10 bytes of entropy")
    number = time_ms << 80 | int.from_bytes(entropy, "big")
    return "".join(ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def first(time_ms: int) -> str:
    """Return the first id of this time, or of the first or last time that ids can have."""
    return make(min(max(time_ms, 0), TIME_MS_MAX), bytes(ENTROPY_BYTES))


def new(time_ms: int) -> str:
    """Return a fresh id of this time with entropy nobody can guess."""
    return make(time_ms, secrets.token_bytes(ENTROPY_BYTES))
