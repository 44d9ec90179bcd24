"""Speed of building segments: from the bytes of pprof messages to the bytes of the object.

Three sizes of profile (about 2, 20 and 200 KB of uncompressed protobuf) in equal shares by bytes, pushed for a few
services; also each size separately. The stacks are random, so that hardly any two share their roots: the worst case for
the stack tree, far from real profiles. The figures are MB of uncompressed protobuf per second of CPU time.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence

from engine.core.kernels import implementation_of
from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_encode import encode_profile
from engine.ingest.segments.segment import SegmentBuilder
from tests.bench.figures import Figures

NAME = "segment_build"
SEED = 20240711
TIME_NS = 1_720_700_000_000_000_000
SEGMENT_ID = "01JKT3DJRETWN25NKEFZNEP1V0"
SAMPLES = {"2kb": 12, "20kb": 170, "200kb": 1900}
SERVICES = 4
SHARE_BYTES, SHARE_BYTES_FULL = 1_000_000, 4_000_000
"""Bytes of each size in the mix."""
REPEATS, REPEATS_FULL = 3, 11
DISTINCT = 40
"""Generated profiles per size; the others are copies with another time."""


def run(full: bool = False) -> Figures:
    """Run the benchmark; figures are medians of the repeats."""
    share, repeats = (SHARE_BYTES_FULL, REPEATS_FULL) if full else (SHARE_BYTES, REPEATS)
    by_size = {name: messages(samples, share) for name, samples in SAMPLES.items()}
    mix = [message for found in by_size.values() for message in found]
    random.Random(SEED).shuffle(mix)
    rates = {f"mb_per_s_core_{name}": rate(found, repeats) for name, found in by_size.items()}
    return Figures(
        parameters={
            "implementation": implementation_of("engine.ingest.segments._intake"),
            "profiles": len(mix),
            "bytes": sum(map(len, mix)),
            "services": SERVICES,
            "repeats": repeats,
        },
        figures={"mb_per_s_core": rate(mix, repeats), **rates},
    )


def messages(samples: int, size: int) -> list[bytes]:
    """Return distinct profiles with ``samples`` samples each and about ``size`` bytes in total."""
    first = message(samples, 0)
    count = max(2, size // len(first))
    made = [message(samples, seed) for seed in range(min(count, DISTINCT))]
    return [_at(made[number % len(made)], TIME_NS + number) for number in range(count)]


def _at(one: bytes, time_ns: int) -> bytes:
    """Return the message with another time: of a repeated scalar field the last value counts."""
    field = bytearray(b"\x48")
    while time_ns >= 0x80:
        field.append(time_ns & 0x7F | 0x80)
        time_ns >>= 7
    return one + bytes([*field, time_ns])


def message(samples: int, seed: int) -> bytes:
    """Return a profile whose stacks have nothing in common."""
    draw = random.Random(SEED + seed)
    frames = [
        Frame(f"package/module.function_{i}", f"src/package/file_{i % 70}.py", 10 * i, 10 * i + 3)
        for i in range(max(20, samples))
    ]
    builder = ProfileBuilder([("cpu", "nanoseconds")], period_type=("cpu", "nanoseconds"), period=10**7)
    for _ in range(samples):
        builder.add(draw.choices(frames, k=draw.randrange(5, 30)), [10**7])
    return encode_profile(builder.profile(time_ns=TIME_NS, duration_ns=10**9), compress=False)


def rate(pushed: Sequence[bytes], repeats: int) -> float:
    """Return MB of these profiles per second of CPU time."""
    build(pushed[: SERVICES * 2])
    size = sum(map(len, pushed))
    return statistics.median(size / 1e6 / build(pushed) for _ in range(repeats))


def build(pushed: Sequence[bytes]) -> float:
    """Build a segment of these profiles; return the CPU seconds."""
    started = time.process_time()
    builder = SegmentBuilder(1)
    for number, one in enumerate(pushed):
        labels = {"__name__": "process_cpu", "service_name": f"service-{number % SERVICES}", "pod": f"pod-{number % 9}"}
        builder.add("tenant", labels, one, received_at_ns=TIME_NS)
    assert builder.profile_count == len(pushed)
    builder.build(SEGMENT_ID)
    return time.process_time() - started
