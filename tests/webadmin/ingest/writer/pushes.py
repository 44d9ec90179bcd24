"""Pushes as distributors send them, with one profile that differs from all others."""

from __future__ import annotations

import time

from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_encode import encode_profile
from engine.ingest.segments.segment_push import PushedSeries, SegmentPush, encode_segment_push

TENANT, SERVICE = "quarry", "checkout"
PROFILE_TYPE = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
LABELS = (("__name__", "process_cpu"), ("service_name", SERVICE))
SAMPLE_VALUE = 10_000_000


def pushed_profile(name: str, *, time_ns: int = 0) -> PushedSeries:
    """A profile with one sample in a function of this name; equal for equal arguments."""
    now_ns = time_ns or time.time_ns()
    builder = ProfileBuilder([("cpu", "nanoseconds")], period_type=("cpu", "nanoseconds"), period=SAMPLE_VALUE)
    builder.add([Frame(name, "app.py", 1, 2), Frame("main", "app.py", 1, 9)], [SAMPLE_VALUE])
    profile = builder.profile(time_ns=now_ns, duration_ns=10**9)
    return PushedSeries(labels=LABELS, pprof=encode_profile(profile, compress=False), received_at_ns=now_ns)


def push_of(*series: PushedSeries, shard: int = 1, tenant: str = TENANT) -> SegmentPush:
    """A push of these profiles."""
    return SegmentPush(tenant=tenant, shard=shard, series=series)


def push_bytes(*series: PushedSeries, shard: int = 1, tenant: str = TENANT) -> bytes:
    """The message that carries them."""
    return encode_segment_push(tenant, shard, series)
