"""Merge jobs over small random segments, written to any store: the same for the same numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence

from engine.core import ulids
from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_model import Profile
from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.profile_block.container.object_names import block_key
from engine.ingest.segments.segment import SegmentBuilder
from engine.lanes.profiles.jobs import ProfileMergeSpec, SourceObject
from engine.storage import ObjectStore

SHARD = 1
EPOCH_MS = 1_750_000_000_000
"""The time of segment 0: any would do, this one never changes."""
FRAMES = [Frame(f"function_{n}", f"file_{n % 9}.py", n, n + 3) for n in range(80)]
STACK_DEPTH_MAX = 10


def random_profile(seed: int, time_ms: int, stacks: int) -> Profile:
    """Return a CPU profile of random stacks."""
    draw = random.Random(seed)
    builder = ProfileBuilder([("cpu", "nanoseconds")], period_type=("cpu", "nanoseconds"), period=10_000_000)
    for _ in range(stacks):
        builder.add([draw.choice(FRAMES) for _ in range(draw.randint(1, STACK_DEPTH_MAX))], [draw.randint(1, 10**9)])
    return builder.profile(time_ns=time_ms * 1_000_000, duration_ns=1_000_000_000)


def put_segment(
    store: ObjectStore, number: int, *, tenants: Sequence[str], services: Sequence[str], stacks: int
) -> SourceObject:
    """Write segment ``number``, one every 500 ms, with a profile per tenant and service."""
    time_ms = EPOCH_MS + 500 * number
    builder = SegmentBuilder(SHARD)
    for position, (tenant, service) in enumerate((tenant, service) for tenant in tenants for service in services):
        profile = random_profile(100 * number + position, time_ms, stacks)
        builder.add(tenant, {"__name__": "process_cpu", "service_name": service}, profile)
    data, meta = builder.build(ulids.make(time_ms, number.to_bytes(ulids.ENTROPY_BYTES, "big")))
    key = block_key(SHARD, "", 0, meta.id)
    store.put(key, data)
    return SourceObject(id=meta.id, key=key, size=len(data), metadata=encode_metadata(meta))


def merge_job(
    job: str,
    store: ObjectStore,
    *,
    first: int = 0,
    count: int = 2,
    fence: int = 1,
    tenants: Sequence[str] = ("anna", "bob"),
    services: Sequence[str] = ("api", "web"),
    stacks: int = 20,
) -> ProfileMergeSpec:
    """Write segments ``first`` to ``first + count`` and return the job that merges them."""
    sources = tuple(
        put_segment(store, number, tenants=tenants, services=services, stacks=stacks)
        for number in range(first, first + count)
    )
    return ProfileMergeSpec(job=job, tenant="", shard=SHARD, level=0, sources=sources, fence=fence)
