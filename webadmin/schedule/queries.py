"""What others may ask of the schedule: its limits and policies."""

from __future__ import annotations

from engine.planning.model import LevelPolicy
from engine.scheduling.model import PolicyName, ScheduleLimits
from webadmin.schedule import models
from webadmin.schedule.errors import PolicyMissing


def schedule_limits(limits: models.Limits) -> ScheduleLimits:
    """Return an operator's limits as the scheduler takes them."""
    return ScheduleLimits(
        lease_ms=limits.lease_seconds * 1000,
        failures_max=limits.failures_max,
        queue_max=limits.queue_max,
        policy=PolicyName(limits.policy),
    )


def level_policies() -> dict[tuple[str, int], LevelPolicy]:
    """Return the policies by lane and level."""
    return {
        (row.lane, row.level): LevelPolicy(
            blocks_max=row.blocks_max,
            age_ms=row.age_seconds * 1000,
            spread_ms=row.spread_seconds * 1000,
            bytes_max=row.bytes_max,
        )
        for row in models.LevelPolicy.objects.all()
    }


def level_policy(policies: dict[tuple[str, int], LevelPolicy], lane: str, level: int) -> LevelPolicy:
    """Return one policy. Raises PolicyMissing."""
    try:
        return policies[lane, level]
    except KeyError:
        raise PolicyMissing(f"lane {lane!r} has no policy for level {level}: add the row in the admin") from None
