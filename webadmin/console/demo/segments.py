"""Builds the planned segments and writes them into the store, as writers would have done over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from engine.profiles import ulids
from engine.profiles.object_names import block_key
from engine.profiles.pprof import parse_profile
from engine.profiles.pprof_model import Profile
from engine.profiles.segment import SegmentBuilder
from engine.storage import ObjectStore
from webadmin.console.demo.plan import PlannedSegment

CREATED_BY = "demo-writer"
NANOSECONDS_PER_MS = 1_000_000
PROFILES_KEPT = 4096  # parsed recordings; each is played several times


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written: objects, their bytes, the profiles and samples in them, the distinct functions they name."""

    objects: int = 0
    bytes: int = 0
    profiles: int = 0
    samples: int = 0
    functions: int = 0


def write_segments(plan: Sequence[PlannedSegment], store: ObjectStore, on_written: Callable[[int], None]) -> Written:
    """Build and store every planned segment; ``on_written`` gets the number of those that are done."""
    functions: set[bytes] = set()

    @lru_cache(maxsize=PROFILES_KEPT)
    def parse(window: Path) -> Profile:
        profile = parse_profile(window.read_bytes())
        functions.update(profile.strings[name] for name in profile.functions.names)
        return profile

    written = Written()
    for number, segment in enumerate(plan, start=1):
        written = _write(segment, store, parse, written)
        on_written(number)
    return replace(written, functions=len(functions))


def _write(segment: PlannedSegment, store: ObjectStore, parse: Callable[[Path], Profile], so_far: Written) -> Written:
    builder = SegmentBuilder(segment.shard, CREATED_BY)
    for push in segment.pushes:
        profile = replace(parse(push.window), time_ns=push.time_ms * NANOSECONDS_PER_MS)
        builder.add(push.tenant, push.labels, profile)
    data, meta = builder.build(ulids.new(segment.time_ms))
    store.put(block_key(meta.shard, meta.tenant, meta.compaction_level, meta.id), data)
    return Written(
        objects=so_far.objects + 1,
        bytes=so_far.bytes + len(data),
        profiles=so_far.profiles + builder.profile_count,
        samples=so_far.samples + builder.sample_count,
    )
