"""Speed of parsing, normalising and building segments of pushed profiles, in MB of uncompressed protobuf.

The profiles are generated from a fixed seed with realistic sizes: a large heap profile (about 1 MB: 12 000 stacks of 4
000 functions) and small CPU profiles (about 30 KB), which show the fixed cost of a call.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

from engine.core.kernels import implementation_of
from engine.formats.pprof import _pprof_py, pprof
from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_encode import encode_profile
from engine.formats.pprof.pprof_model import ENTRIES_MAX
from engine.ingest.segments.normalise import normalise
from engine.ingest.segments.segment import SegmentBuilder
from tests.bench.figures import Figures, cpu_seconds

NAME = "pprof_parse"
SEED = 20240711
TIME_NS = 1_720_700_000_000_000_000
REPEATS, REPEATS_FULL = 7, 31
SMALL_PROFILES = 40


def run(full: bool = False) -> Figures:
    """Run the benchmark; the parser's figure is CPU time of one core, median of the repeats."""
    large = message(samples=12_000, functions=4_000, seed=SEED)
    small = [message(samples=90, functions=250, seed=SEED + i) for i in range(SMALL_PROFILES)]
    small_bytes = sum(map(len, small))
    repeats = REPEATS_FULL if full else REPEATS
    large_rate = rate(lambda: pprof.parse_profile(large), len(large), repeats)
    small_rate = rate(lambda: [pprof.parse_profile(one) for one in small], small_bytes, repeats)
    twin_rate = rate(lambda: _pprof_py.parse_message(large, ENTRIES_MAX), len(large), 3)
    parsed = pprof.parse_profile(large)
    return Figures(
        parameters={
            "implementation": implementation_of("engine.formats.pprof._pprof"),
            "large_bytes": len(large),
            "small_bytes": small_bytes // SMALL_PROFILES,
            "repeats": repeats,
        },
        figures={
            "mb_per_s_core": large_rate,
            "small_mb_per_s_core": small_rate,
            "twin_mb_per_s_core": twin_rate,
            "speedup_over_twin": large_rate / twin_rate,
            "normalise_mb_per_s_core": rate(lambda: normalise(parsed, received_at_ns=TIME_NS), len(large), repeats),
            "segment_mb_per_s_core": rate(lambda: build_segment(small), small_bytes, repeats),
        },
    )


def message(*, samples: int, functions: int, seed: int) -> bytes:
    """Return a profile whose stacks share their roots, as real ones do."""
    draw = random.Random(seed)
    frames = [
        Frame(
            f"example.org/service/package{i % 90}.(*Type{i % 400}).Method{i}", f"package{i % 90}/file{i % 700}.go", i, i
        )
        for i in range(functions)
    ]
    builder = ProfileBuilder([("inuse_space", "bytes")], period_type=("space", "bytes"), period=524_288)
    stack = [frames[0]]
    while len(builder) < samples:
        stack = stack[: draw.randint(1, len(stack))] + draw.choices(frames, k=draw.randint(1, 12))
        builder.add(reversed(stack[:60]), [draw.randrange(1, 1 << 24)])
    return encode_profile(builder.profile(time_ns=TIME_NS, duration_ns=10**10), compress=False)


def build_segment(messages: list[bytes]) -> None:
    """Parse, normalise and encode profiles of four services."""
    builder = SegmentBuilder(1)
    for position, one in enumerate(messages):
        labels = {"__name__": "memory", "service_name": f"service-{position % 4}"}
        builder.add("tenant", labels, pprof.parse_profile(one))
    builder.build("01JKT3DJRETWN25NKEFZNEP1V0")


def rate(work: Callable[[], object], size: int, repeats: int) -> float:
    """Return MB of ``size`` per second of CPU time, median of the repeats."""
    work()
    return statistics.median(size / 1e6 / max(cpu_seconds(work), 1e-9) for _ in range(repeats))
