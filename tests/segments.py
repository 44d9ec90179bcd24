"""Small real segments for tests: made by the engine from built profiles, equal for equal arguments."""

from __future__ import annotations

import random
from collections.abc import Sequence

from engine.core import ulids
from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.pprof.pprof_model import Profile
from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.profile_block.container.object_names import block_key
from engine.formats.profile_block.model import BlockMeta
from engine.ingest.segments.segment import SegmentBuilder
from engine.lanes.profiles.jobs import ProfileMergeSpec, SourceObject
from engine.storage import ObjectStore

TENANTS = ("quarry", "river")
SERVICES = ("checkout", "search")
SAMPLES_PER_PROFILE = 20
FUNCTIONS = 60


def make_profile(seed: int, time_ms: int) -> Profile:
    """A CPU profile of SAMPLES_PER_PROFILE random stacks over FUNCTIONS functions."""
    chance = random.Random(seed)
    builder = ProfileBuilder([("cpu", "nanoseconds")], period_type=("cpu", "nanoseconds"), period=10_000_000)
    frames = [Frame(f"package.function_{n}", f"package/file_{n % 7}.py", n, n + 3) for n in range(FUNCTIONS)]
    for _ in range(SAMPLES_PER_PROFILE):
        stack = [chance.choice(frames) for _ in range(chance.randint(2, 12))]
        builder.add(stack, [chance.randint(1, 50) * 10_000_000])
    return builder.profile(time_ns=time_ms * 1_000_000, duration_ns=1_000_000_000)


def make_segment(
    time_ms: int, *, shard: int = 1, seed: int = 0, tenants: Sequence[str] = TENANTS, services: Sequence[str] = SERVICES
) -> tuple[bytes, BlockMeta]:
    """One segment with a profile per tenant and service; its id carries ``time_ms``."""
    builder = SegmentBuilder(shard, created_by="tests")
    for tenant in tenants:
        for service in services:
            labels = {"__name__": "process_cpu", "service_name": service, "host": f"host-{seed % 3}"}
            builder.add(tenant, labels, make_profile(_seed(tenant, service, seed), time_ms))
    entropy = random.Random(f"{time_ms}/{shard}/{seed}").randbytes(ulids.ENTROPY_BYTES)
    return builder.build(ulids.make(time_ms, entropy))


def put_segment(store: ObjectStore, data: bytes, meta: BlockMeta) -> SourceObject:
    """Write a segment where a writer would, and describe it as a source of a merge."""
    key = block_key(meta.shard, "", 0, meta.id)
    store.put(key, data)
    return SourceObject(id=meta.id, key=key, size=len(data), metadata=encode_metadata(meta))


def segment_job(store: ObjectStore, name: str, fence: int, *, count: int = 2, shard: int = 1) -> ProfileMergeSpec:
    """Write ``count`` segments and return the specification of the job that merges them."""
    start_ms = 1_700_000_000_000 + fence * 1_000_000
    sources = [put_segment(store, *make_segment(start_ms + n * 500, shard=shard, seed=n)) for n in range(count)]
    return ProfileMergeSpec(job=name, tenant="", shard=shard, level=0, sources=tuple(sources), fence=fence)


def _seed(tenant: str, service: str, seed: int) -> int:
    return random.Random(f"{tenant}/{service}/{seed}").getrandbits(32)
