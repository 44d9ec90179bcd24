"""Fuzzes the way of a pushed profile: ``python tests/fuzz/fuzz_pprof.py --seconds 60 --seed 1 FILES``.

Mutations of the given pprof files (or of a made profile) go through both parsers and into a segment. Anything but an
agreement of the parsers, a typed error or a finished segment ends the run with the input's hexadecimal digits. Set
LITHIFY_DEBUG_BUILD=1 when building to check every bound.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from engine.core.errors import BadObject
from engine.core.kernels import implementation_of
from engine.formats.pprof import _pprof_py, pprof
from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_encode import encode_profile
from engine.formats.pprof.pprof_model import ENTRIES_MAX, Profile
from engine.ingest.segments.segment import SegmentBuilder

SEED_BYTES_MAX = 100_000
BLOCK_ID = "01JKT3DJRETWN25NKEFZNEP1V0"
Outcome = Profile | tuple[str, int]


def main() -> int:
    """Run until the time is over; print how many inputs were tried, parsed and stored."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    seeds = [pprof.uncompressed(path.read_bytes()) for path in options.files] or [made_message()]
    seeds = [seed for seed in seeds if len(seed) <= SEED_BYTES_MAX]
    tried = parsed = stored = 0
    deadline = time.monotonic() + options.seconds
    while time.monotonic() < deadline:
        data = mutated(draw.choice(seeds), draw)
        tried += 1
        try:
            outcome = agreed_outcome(data)
            parsed += isinstance(outcome, Profile)
            stored += isinstance(outcome, Profile) and store(outcome)
        except BaseException:
            print(data.hex())
            raise
    print(f"{implementation_of('engine.formats.pprof._pprof')}: {tried} tried, {parsed} parsed, {stored} stored")
    return 0


def made_message() -> bytes:
    """Return a small profile with labels."""
    builder = ProfileBuilder([("cpu", "nanoseconds")], period_type=("cpu", "nanoseconds"), period=1)
    for i in range(60):
        stack = [Frame(f"function-{j}", f"file-{j % 3}", j, j) for j in range(i % 7, 9)]
        builder.add(stack, [i], [("thread", str(i % 3)), ("span_id", f"{i:016x}")])
    return encode_profile(builder.profile(time_ns=1, duration_ns=1), compress=False)


def mutated(seed: bytes, draw: random.Random) -> bytes:
    """Change, drop, repeat or insert a few bytes."""
    data = bytearray(seed)
    for _ in range(draw.randrange(1, 6)):
        at = draw.randrange(len(data) + 1)
        kind = draw.randrange(4)
        if kind == 0:
            data[at : at + 1] = bytes([draw.randrange(256)])
        elif kind == 1:
            del data[at : at + draw.randrange(1, 20)]
        elif kind == 2:
            data[at:at] = data[at : at + draw.randrange(1, 40)]
        else:
            data[at:at] = b"\xff" * draw.randrange(1, 11)
    return bytes(data)


def agreed_outcome(data: bytes) -> Outcome:
    """Parse with the parser in use and with the twin; they must agree."""
    outcomes: list[Outcome] = []
    for parse in (pprof.parse_message, _pprof_py.parse_message):
        try:
            outcomes.append(parse(data, ENTRIES_MAX))
        except BadObject as error:
            outcomes.append((type(error).__name__, error.offset))
    assert outcomes[0] == outcomes[1], outcomes
    return outcomes[0]


def store(profile: Profile) -> bool:
    """Put the profile into a segment; return whether anything of it was worth storing."""
    builder = SegmentBuilder(1)
    try:
        builder.add("tenant", {"__name__": "fuzz"}, profile, received_at_ns=1)
    except BadObject:
        return False
    if builder.row_count:
        builder.build(BLOCK_ID)
    return builder.row_count > 0


if __name__ == "__main__":
    sys.exit(main())
