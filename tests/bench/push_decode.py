"""Speed of decoding pushes in a distributor: from request bytes to validated profiles, in MB of uncompressed pprof.

The mix of ``segment_build``, one profile per request, once uncompressed and once gzipped as by most senders.
"""

from __future__ import annotations

import gzip
import statistics
import time
from collections.abc import Sequence

from engine.core.kernels import implementation_of
from engine.formats.proto import push_pb2
from engine.ingest.model import PushLimits
from engine.ingest.push import decode_push
from tests.bench.figures import Figures
from tests.bench.segment_build import SAMPLES, SHARE_BYTES, SHARE_BYTES_FULL, TIME_NS, messages

NAME = "push_decode"
REPEATS, REPEATS_FULL = 5, 21
LEVEL = 1
LABELS = {"__name__": "process_cpu", "service_name": "shop", "pod": "pod-1", "region": "north"}


def run(full: bool = False) -> Figures:
    """Run the benchmark; figures are medians of the repeats."""
    share, repeats = (SHARE_BYTES_FULL, REPEATS_FULL) if full else (SHARE_BYTES, REPEATS)
    by_size = {name: messages(samples, share) for name, samples in SAMPLES.items()}
    mix = [message for found in by_size.values() for message in found]
    rates = {f"mb_per_s_core_{name}": rate(found, found, repeats) for name, found in by_size.items()}
    return Figures(
        parameters={
            "implementation": implementation_of("engine.ingest.segments._push_screen"),
            "profiles": len(mix),
            "bytes": sum(map(len, mix)),
            "repeats": repeats,
        },
        figures={
            "mb_per_s_core": rate(mix, mix, repeats),
            "gzipped_mb_per_s_core": rate(mix, [gzip.compress(one, LEVEL) for one in mix], repeats),
            **rates,
        },
    )


def rate(profiles: Sequence[bytes], sent: Sequence[bytes], repeats: int) -> float:
    """Return MB of profiles per second of CPU time."""
    bodies = [_request(one) for one in sent]
    decode(bodies[:4])
    return statistics.median(sum(map(len, profiles)) / 1e6 / decode(bodies) for _ in range(repeats))


def decode(bodies: Sequence[bytes]) -> float:
    """Decode every request; return the CPU seconds."""
    limits = PushLimits()
    started = time.process_time()
    for body in bodies:
        taken = decode_push(body, is_json=False, limits=limits, now_ns=TIME_NS)
        assert len(taken.profiles) == 1, taken.refused
    return time.process_time() - started


def _request(profile: bytes) -> bytes:
    request = push_pb2.PushRequest()
    series = request.series.add()
    for name, value in LABELS.items():
        series.labels.add(name=name, value=value)
    series.samples.add(raw_profile=profile)
    return request.SerializeToString()
