"""Bytes of a pprof push to a ``Profile``: unzip with a guard against bombs, then parse.

Cost: one pass over the protobuf; the compiled parser does about a byte per nanosecond, the plain twin some MB/s.
``IMPLEMENTATION`` says which one this process uses; LITHIFY_PURE=1 forces the twin.
"""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING

from engine.core.errors import BadProfile, LimitExceeded, Truncated
from engine.formats.pprof.pprof_model import ENTRIES_MAX, SIZE_MAX, Profile

GZIP_MAGIC = b"\x1f\x8b"

RATIO_MAX = 200
"""Uncompressed bytes per compressed byte beyond which an input is taken for a bomb. Real profiles stay under 20;
deflate itself ends near 1032."""

RATIO_FREE_SIZE = 1 << 20
"""Uncompressed bytes that are allowed at any ratio: small repetitive profiles compress very well and harm nobody."""

MEMBERS_MAX = 64
"""Gzip members one input may consist of: each one costs a copy of what follows it, and real senders write one."""

_GZIP_WINDOW = 16 + zlib.MAX_WBITS

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.formats.pprof._pprof_py import parse_message

    IMPLEMENTATION = "python"
else:
    try:
        from engine.formats.pprof._pprof import parse_message

        IMPLEMENTATION = "compiled"
    except ModuleNotFoundError:
        from engine.formats.pprof._pprof_py import parse_message

        IMPLEMENTATION = "python"


def parse_profile(data: bytes, *, size_max: int = SIZE_MAX, entries_max: int = ENTRIES_MAX) -> Profile:
    """Parse a pprof profile, gzipped or not, of at most ``size_max`` uncompressed bytes.

    Raises LimitExceeded (too large, too many entries, a bomb), Truncated, or BadProfile (not pprof, no sample types).
    Offsets in errors count in the uncompressed message.
    """
    profile = parse_message(uncompressed(data, size_max=size_max), entries_max)
    if not profile.sample_types:
        raise BadProfile("pprof", -1, "the profile has no sample types; is this a pprof profile?")
    return profile


def uncompressed(data: bytes, *, size_max: int = SIZE_MAX) -> bytes:
    """Return the message of a gzipped input (of one or more members), or the input itself if it is not gzipped."""
    if not data.startswith(GZIP_MAGIC):
        if len(data) > size_max:
            raise LimitExceeded("pprof", -1, f"the profile has {len(data)} bytes, the limit is {size_max}")
        return data
    limit = min(size_max, max(RATIO_FREE_SIZE, RATIO_MAX * len(data)))
    members: list[bytes] = []
    total, left = 0, data
    while left:
        if len(members) == MEMBERS_MAX:
            raise LimitExceeded("pprof", -1, f"the gzip data has more than {MEMBERS_MAX} members")
        member, left = _inflate_member(left, limit - total)
        total += len(member)
        members.append(member)
    return members[0] if len(members) == 1 else b"".join(members)


def _inflate_member(data: bytes, limit: int) -> tuple[bytes, bytes]:
    """Return one member's content and what follows it; never produces more than one byte beyond ``limit``."""
    inflater = zlib.decompressobj(_GZIP_WINDOW)
    try:
        content = inflater.decompress(data, limit + 1)
    except zlib.error as error:
        raise BadProfile("pprof", -1, f"the gzip data is damaged: {error}") from error
    if len(content) > limit:
        reason = f"the profile unzips to more than {limit} bytes of its budget (size limit or ratio {RATIO_MAX})"
        raise LimitExceeded("pprof", -1, reason)
    if not inflater.eof:
        raise Truncated("pprof", -1, "the gzip data ends early")
    return content, inflater.unused_data
