"""The simulated scenario: workload, fleet and costs, limits, and faults."""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from engine.lanes.profiles.plan.model import LevelPolicy
from engine.schedule.model import ScheduleLimits

START_MS = 1_790_000_000_000
HOUR_MS = 3_600_000
MIB = 1 << 20
CONSOLIDATING_SHARE = 0.4
"""Fraction of the random scenarios with consolidation of partial_batches."""


class Fault(enum.StrEnum):
    """Faults: first those of polls, then of added blocks, then of the service."""

    CRASH_BEFORE_UPLOAD = "crash_before_upload"
    CRASH_AFTER_UPLOAD = "crash_after_upload"
    CRASH_AFTER_REPORT = "crash_after_report"
    LOST_RESPONSE = "lost_response"
    DUPLICATE_DELIVERY = "duplicate_delivery"
    PAUSE = "pause"
    RACE = "race"
    RELEASE = "release"
    FAILED_RUN = "failed_run"
    BAD_RESULT = "bad_result"
    DUPLICATE_ADD = "duplicate_add"
    DIFFERING_ADD = "differing_add"
    DELAYED_ADD = "delayed_add"
    POISON = "poison"
    OUTAGE = "outage"
    CLOCK_JUMP = "clock_jump"
    OBJECT_LOSS = "object_loss"
    DELETION_FAILURE = "deletion_failure"
    LIMIT_CHANGE = "limit_change"
    REQUEUE = "requeue"
    RESTART = "restart"
    GIVE_BACK = "give_back"
    ISOLATION = "isolation"
    STANDSTILL = "standstill"
    SHARES = "shares"
    RETENTION = "retention"
    DELETE_REQUEST = "delete_request"


class Sabotage(enum.StrEnum):
    """A safeguard to disable, to test that the checks detect it."""

    NONE = "none"
    FENCE = "fence"  # reports count with any token
    LEDGER = "ledger"  # accepted ids are not remembered
    DELAY = "delay"  # objects are deleted at once
    GRACE = "grace"  # retention does not wait for the grace period of a partition
    WATERMARK = "watermark"  # a result counts as obeying all delete requests at its arrival


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Arriving segments: a constant rate over all shards, and periodic bursts."""

    segments_per_s: float
    tenants: int = 1
    shards: int = 1
    tenants_per_segment: int = 1
    services: int = 1
    tenant_skew: float = 0.0
    segment_bytes: int = MIB
    burst_segments: int = 0
    burst_every_s: float = 0.0

    def tenant_weights(self) -> list[float]:
        """Return the relative frequency of each tenant: a power law with exponent ``skew``, 0 for equal."""
        return [1.0 / (rank + 1) ** self.tenant_skew for rank in range(self.tenants)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Workers and their slots; a job takes a fixed time plus a time per source byte.

    The clock of worker n is off by n times ``clock_error_ms``.
    """

    workers: int
    slots: int = 1
    poll_s: float = 5.0
    fixed_ms: float = 500.0
    ms_per_mib: float = 50.0
    clock_error_ms: int = 0

    def run_ms(self, size_bytes: int) -> int:
        """Return the run time of a job in one slot."""
        return max(1, round(self.fixed_ms + self.ms_per_mib * size_bytes / MIB))


def default_policies() -> dict[int, LevelPolicy]:
    """Return the level policies of a fresh installation."""
    spread_ms = 3 * HOUR_MS
    return {
        0: LevelPolicy(blocks_max=20, age_ms=36_000, spread_ms=spread_ms),
        1: LevelPolicy(blocks_max=10, age_ms=720_000, spread_ms=spread_ms),
        2: LevelPolicy(blocks_max=10, age_ms=3 * HOUR_MS, spread_ms=spread_ms),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All parameters but the seed. ``keeps_history`` keeps the log and all blocks for exact checks of small runs."""

    workload: Workload
    fleet: Fleet
    duration_s: float
    policies: Mapping[int, LevelPolicy] = field(default_factory=default_policies)
    limits: ScheduleLimits = field(default_factory=ScheduleLimits)
    cleanup_delay_s: float = 900.0
    faults: frozenset[Fault] = frozenset()
    trouble_rate: float = 0.0
    sabotage: Sabotage = Sabotage.NONE
    keeps_history: bool = True
    drains: bool = True
    sample_s: float = 0.0


def random_scenario(seed: int) -> Scenario:
    """Return a small scenario with many faults; the seed determines sizes and possible faults."""
    draw = random.Random(f"scenario {seed}")
    tenants = draw.randint(1, 3)
    policies = {
        level: LevelPolicy(
            blocks_max=draw.randint(2, 4),
            age_ms=draw.choice([5_000, 20_000, 45_000]),
            spread_ms=draw.choice([60_000, 3 * HOUR_MS]),
            bytes_max=draw.choice([0, 0, 12 * MIB]),
        )
        for level in range(3)
    }
    scenario = Scenario(
        workload=Workload(
            segments_per_s=draw.choice([0.1, 0.3, 1.0]),
            tenants=tenants,
            shards=draw.randint(1, 3),
            tenants_per_segment=draw.randint(1, tenants),
            services=draw.randint(1, 2),
            tenant_skew=draw.choice([0.0, 1.5]),
            burst_segments=draw.choice([0, 8]),
            burst_every_s=40.0,
        ),
        fleet=Fleet(
            workers=draw.randint(1, 5),
            slots=draw.randint(1, 3),
            poll_s=draw.choice([2.0, 5.0]),
            fixed_ms=draw.choice([500.0, 8_000.0, 25_000.0]),
            ms_per_mib=100.0,
        ),
        duration_s=120.0,
        policies=policies,
        limits=ScheduleLimits(
            lease_ms=15_000, failures_max=draw.choice([0, 1, 2, 3]), queue_max=draw.choice([0, 2, 5, 50])
        ),
        cleanup_delay_s=30.0,
        faults=frozenset(fault for fault in Fault if draw.random() < 0.6),
        trouble_rate=draw.choice([0.05, 0.2, 0.5]),
    )
    if draw.random() < CONSOLIDATING_SHARE:
        limit = draw.choice([4 * MIB, 64 * MIB])
        return replace(scenario, policies={level: _joining(policy, limit) for level, policy in policies.items()})
    return scenario


def _joining(policy: LevelPolicy, partial_batch_bytes: int) -> LevelPolicy:
    """Return the policy with consolidation of partial batches that have reached half the age of a due block."""
    return replace(policy, partial_batch_bytes=partial_batch_bytes, partial_batch_age_ms=policy.age_ms // 2)
