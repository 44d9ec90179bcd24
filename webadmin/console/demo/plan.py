"""Which recorded profile goes into which segment: a pure plan of what a fleet would have pushed.

Two tenants run the recorded programs, each on its own pods. Every service belongs to one shard; a shard's writer closes
a segment every 500 ms with the profiles of its services in it; memory is looked at less often than time. A recording
has fewer windows than there are segments, so windows are played again at later times; each tenant starts at another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TENANTS = ("orchard", "harbour")
SHARD_COUNT = 2
SEGMENT_SPACING_MS = 500
PODS_PER_SERVICE = 3
WINDOWS_BETWEEN_TENANTS = 7  # odd, so that two tenants hardly ever play the same window together
TICKS_BETWEEN = {"memory": 4}
"""Profiles that are snapshots, and large ones: taken in every so many segments, each service at its own turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The windows of one profile type of one program, in the order of their recording. ``name`` is e.g. "memory"."""

    service: str
    name: str
    windows: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """One profile as its program would have sent it at ``time_ms``."""

    tenant: str
    labels: tuple[tuple[str, str], ...]
    window: Path
    time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSegment:
    """A segment and what its writer received. ``time_ms`` (unix) goes into the segment's id."""

    shard: int
    time_ms: int
    pushes: tuple[Push, ...]


def plan_segments(recordings: Sequence[Recording], *, segment_count: int, end_ms: int) -> list[PlannedSegment]:
    """Plan ``segment_count`` segments over the shards, in the order of time, the last one closed before ``end_ms``."""
    shards = _services_by_shard(recordings)
    tick_count = -(-segment_count // len(shards))
    begin_ms = end_ms - tick_count * SEGMENT_SPACING_MS
    segments = []
    for number in range(segment_count):
        tick, position = divmod(number, len(shards))
        # The writers of two shards do not tick together.
        time_ms = begin_ms + tick * SEGMENT_SPACING_MS + position * SEGMENT_SPACING_MS // len(shards)
        pushes = _pushes(shards[position], tick, time_ms)
        segments.append(PlannedSegment(shard=position + 1, time_ms=time_ms, pushes=pushes))
    return segments


def _services_by_shard(recordings: Sequence[Recording]) -> list[list[Recording]]:
    """Deal the services out over the shards; a shard that would get none is left away."""
    services = sorted({recording.service for recording in recordings})
    shards: list[list[Recording]] = [[] for _ in range(min(SHARD_COUNT, len(services)))]
    for recording in recordings:
        shards[services.index(recording.service) % len(shards)].append(recording)
    return shards


def _pushes(recordings: Sequence[Recording], tick: int, time_ms: int) -> tuple[Push, ...]:
    services = sorted({recording.service for recording in recordings})
    return tuple(
        Push(
            tenant=tenant,
            labels=_labels(tenant, recording, tick),
            window=recording.windows[(turn + position * WINDOWS_BETWEEN_TENANTS) % len(recording.windows)],
            time_ms=time_ms,
        )
        for position, tenant in enumerate(TENANTS)
        for recording in recordings
        if (turn := _turn(recording, services.index(recording.service), tick)) is not None
    )


def _turn(recording: Recording, service_position: int, tick: int) -> int | None:
    """Return how often the recording was pushed before, None if it is not its turn."""
    turn, rest = divmod(tick + service_position, TICKS_BETWEEN.get(recording.name, 1))
    return None if rest else turn


def _labels(tenant: str, recording: Recording, tick: int) -> tuple[tuple[str, str], ...]:
    pod = f"{recording.service}-{tick % PODS_PER_SERVICE}"
    return (
        ("__name__", recording.name),
        ("namespace", tenant),
        ("pod", pod),
        ("service_name", recording.service),
    )
