"""Plan which recorded profiles are pushed in which round, as the programs of a small fleet would. Pure functions.

Two tenants run the recorded programs, each on its own pods. In every round each service of each tenant sends one
request with its profiles of that time; memory is sampled less often than time. A recording has fewer windows than there
are rounds, so windows are repeated with later times; each tenant starts at another window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TENANTS = ("orchard", "harbour")
PODS_PER_SERVICE = 3
WINDOWS_BETWEEN_TENANTS = 7  # Odd, so that two tenants rarely send the same window in the same round.
ROUNDS_BETWEEN = {"memory": 4}
"""Rounds between two pushes by profile name: memory profiles are large snapshots, and services take turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The windows of one profile type of one program, in recorded order. ``name`` is for example "memory"."""

    service: str
    name: str
    windows: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSeries:
    """One profile of a push: the recorded window and its labels."""

    labels: tuple[tuple[str, str], ...]
    window: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPush:
    """One request of a program at ``time_ms`` (unix milliseconds), which is the time of its profiles."""

    tenant: str
    service: str
    time_ms: int
    series: tuple[PlannedSeries, ...]


def plan_round(recordings: Sequence[Recording], number: int, *, time_ms: int) -> list[PlannedPush]:
    """Plan round ``number`` (from 0): one push for each service of each tenant that has profiles in it."""
    services = sorted({recording.service for recording in recordings})
    pushes = [
        PlannedPush(
            tenant=tenant,
            service=service,
            time_ms=time_ms,
            series=tuple(
                PlannedSeries(
                    labels=_labels(tenant, recording, number),
                    window=recording.windows[(turn + tenant_number * WINDOWS_BETWEEN_TENANTS) % len(recording.windows)],
                )
                for recording in recordings
                if recording.service == service
                if (turn := _turn(recording, service_number, number)) is not None
            ),
        )
        for tenant_number, tenant in enumerate(TENANTS)
        for service_number, service in enumerate(services)
    ]
    return [push for push in pushes if push.series]


def _turn(recording: Recording, service_number: int, number: int) -> int | None:
    """Return how often the recording was pushed before, None if it is not pushed in this round."""
    turn, rest = divmod(number + service_number, ROUNDS_BETWEEN.get(recording.name, 1))
    return None if rest else turn


def _labels(tenant: str, recording: Recording, number: int) -> tuple[tuple[str, str], ...]:
    return (
        ("__name__", recording.name),
        ("namespace", tenant),
        ("pod", f"{recording.service}-{number % PODS_PER_SERVICE}"),
        ("service_name", recording.service),
    )
