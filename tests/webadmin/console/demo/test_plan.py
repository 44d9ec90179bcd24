"""The plan of the demonstration's segments: many small ones, of several tenants and services, on a regular beat."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

from webadmin.console.demo.plan import SEGMENT_SPACING_MS, PlannedSegment, Recording, plan_segments

END_MS = 1_750_000_000_000
SERVICES = ("parser", "tables", "store", "templates")
TYPES = ("process_cpu", "wall", "memory")


def recordings(window_count: int = 9, services: tuple[str, ...] = SERVICES) -> list[Recording]:
    return [
        Recording(service=s, name=t, windows=tuple(Path(f"{s}/{t}/{n}") for n in range(window_count)))
        for s in services
        for t in TYPES
    ]


def plan(count: int, **choices: int) -> list[PlannedSegment]:
    return plan_segments(recordings(**choices), segment_count=count, end_ms=END_MS)


def test_there_are_exactly_as_many_segments_as_asked_for() -> None:
    assert [len(plan(count)) for count in (1, 2, 301)] == [1, 2, 301]


def test_the_segments_of_a_shard_are_half_a_second_apart_and_none_lies_in_the_future() -> None:
    for shard in (1, 2):
        times = [s.time_ms for s in plan(300) if s.shard == shard]
        assert {later - earlier for earlier, later in pairwise(times)} == {SEGMENT_SPACING_MS}
        assert times[-1] < END_MS


def test_every_segment_has_several_tenants_and_services() -> None:
    for segment in plan(300):
        labels = [dict(push.labels) for push in segment.pushes]
        assert len({push.tenant for push in segment.pushes}) == 2
        assert len({each["service_name"] for each in labels}) == 2
        assert {each["__name__"] for each in labels} >= {"process_cpu", "wall"}


def test_every_service_pushes_memory_in_every_fourth_segment_of_its_shard() -> None:
    pushes = Counter((dict(p.labels)["service_name"], dict(p.labels)["__name__"]) for s in plan(320) for p in s.pushes)
    for service in SERVICES:
        assert pushes[service, "wall"] == 2 * 160
        assert pushes[service, "memory"] == 2 * 40


def test_together_two_tenants_run_four_services_on_two_shards() -> None:
    segments = plan(300)
    datasets = {(p.tenant, dict(p.labels)["service_name"]) for s in segments for p in s.pushes}
    assert len(datasets) == 8
    assert Counter(s.shard for s in segments) == {1: 150, 2: 150}


def test_a_service_stays_on_its_shard() -> None:
    places = {(dict(p.labels)["service_name"], s.shard) for s in plan(50) for p in s.pushes}
    assert len(places) == len(SERVICES)


def test_the_tenants_of_a_segment_play_different_windows() -> None:
    for segment in plan(100):
        windows = Counter(push.window for push in segment.pushes)
        assert max(windows.values()) == 1


def test_recordings_of_any_length_are_played_again_from_their_beginning() -> None:
    played = {push.window for segment in plan(40, window_count=2) for push in segment.pushes}
    assert len(played) == 2 * len(SERVICES) * len(TYPES)


def test_one_single_service_needs_one_shard_only() -> None:
    segments = plan_segments(recordings(services=("alone",)), segment_count=4, end_ms=END_MS)
    assert {s.shard for s in segments} == {1}
