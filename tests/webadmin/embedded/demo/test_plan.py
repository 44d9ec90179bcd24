"""The plan of what is pushed: all services of all tenants in every round, memory less often, no window twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from webadmin.embedded.demo.plan import TENANTS, PlannedPush, Recording, plan_round

TIME_MS = 1_750_000_000_000
SERVICES = ("parser", "tables", "store", "templates")
TYPES = ("process_cpu", "wall", "memory")


def recordings(window_count: int = 9, services: tuple[str, ...] = SERVICES) -> list[Recording]:
    return [
        Recording(service=s, name=t, windows=tuple(Path(f"{s}/{t}/{n}") for n in range(window_count)))
        for s in services
        for t in TYPES
    ]


def rounds(count: int, **choices: int) -> list[list[PlannedPush]]:
    return [plan_round(recordings(**choices), number, time_ms=TIME_MS + number) for number in range(count)]


def test_every_service_of_every_tenant_pushes_once_in_a_round() -> None:
    for pushes in rounds(20):
        assert Counter((p.tenant, p.service) for p in pushes) == Counter((t, s) for t in TENANTS for s in SERVICES)


def test_a_round_has_the_time_it_was_planned_for() -> None:
    for number, pushes in enumerate(rounds(5)):
        assert {push.time_ms for push in pushes} == {TIME_MS + number}


def test_a_push_is_labelled_as_what_its_program_and_pod_send() -> None:
    for number, pushes in enumerate(rounds(7)):
        for push in pushes:
            for series in push.series:
                labels = dict(series.labels)
                assert (labels["service_name"], labels["namespace"]) == (push.service, push.tenant)
                assert labels["pod"] == f"{push.service}-{number % 3}"
                assert series.window.parts[:2] == (push.service, labels["__name__"])


def test_every_service_pushes_memory_in_every_fourth_round_at_its_own_offset() -> None:
    sent = Counter(
        (push.service, dict(series.labels)["__name__"])
        for pushes in rounds(40)
        for push in pushes
        for series in push.series
    )
    for service in SERVICES:
        assert sent[service, "wall"] == len(TENANTS) * 40
        assert sent[service, "memory"] == len(TENANTS) * 10
    for pushes in rounds(8):
        with_memory = {push.service for push in pushes if len(push.series) == len(TYPES)}
        assert len(with_memory) == 1


def test_the_tenants_play_different_windows_in_a_round() -> None:
    for pushes in rounds(100):
        windows = Counter(series.window for push in pushes for series in push.series)
        assert max(windows.values()) == 1


def test_recordings_of_any_length_are_played_again_from_their_beginning() -> None:
    played = {series.window for pushes in rounds(40, window_count=2) for push in pushes for series in push.series}
    assert len(played) == 2 * len(SERVICES) * len(TYPES)


def test_a_service_without_profiles_pushes_nothing() -> None:
    snapshots = [one for one in recordings() if one.name == "memory"]
    for number in range(8):
        pushes = plan_round(snapshots, number, time_ms=TIME_MS)
        assert len({push.service for push in pushes}) == 1
        assert all(push.series for push in pushes)
