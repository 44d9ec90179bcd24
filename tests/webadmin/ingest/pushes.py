"""Pushes as profilers send them, with profiles of this moment."""

from __future__ import annotations

import time

from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_encode import encode_profile
from engine.formats.proto import push_pb2

PUSH = "/push.v1.PusherService/Push"
CPU = {"__name__": "process_cpu", "service_name": "web"}


def fresh_pprof(*stacks: tuple[str, ...], age_s: float = 1, labels: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Return an uncompressed CPU profile of ``stacks`` (leaf first) that began ``age_s`` ago."""
    builder = ProfileBuilder([("cpu", "nanoseconds")], period_type=("cpu", "nanoseconds"), period=10**7)
    for stack in stacks or (("leaf", "root"),):
        builder.add([Frame(name, "app.py", 1, 2) for name in stack], [10**7], labels)
    begun = time.time_ns() - int(age_s * 10**9)
    return encode_profile(builder.profile(time_ns=begun, duration_ns=10**9), compress=False)


def push_of(*series: tuple[dict[str, str], list[bytes]]) -> push_pb2.PushRequest:
    """Return a push of these series."""
    request = push_pb2.PushRequest()
    for labels, profiles in series:
        one = request.series.add()
        for name, value in labels.items():
            one.labels.add(name=name, value=value)
        for profile in profiles:
            one.samples.add(raw_profile=profile)
    return request


def push_body(*services: str) -> bytes:
    """Return a push with one small CPU profile for each service."""
    every = [({**CPU, "service_name": service}, [fresh_pprof()]) for service in services or ("web",)]
    return push_of(*every).SerializeToString()
