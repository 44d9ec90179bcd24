"""Simulated actions of operators and control tasks: return, pause, set shares, isolate, remove data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from engine.lanes.profiles.plan.retention import RetentionPolicy
from engine.schedule.isolation import QuarantineBlock, QuarantineMissing, Split, find_breakages, judge
from engine.schedule.limits import ScopeKind
from engine.schedule.model import JobState, ParkedKind
from engine.schedule.pauses import PausedScope, PauseMode
from engine.simulation.environment.suspects import Suspects
from engine.simulation.environment.world import World
from engine.simulation.memory import actions, removal
from engine.simulation.memory.results import is_about
from engine.simulation.memory.rows import LANE, LIVE_BLOCKS, MemoryJob
from engine.simulation.scenario import Fault, Sabotage

CONTROL_S = 10.0
"""Interval of the control tasks that isolate bad blocks and rewrite blocks with deleted data."""
KEEP_MS = (0, 20_000, 60_000)
"""Retention periods that a history draws from; 0 is unlimited."""


class Operators:
    """Runs one random action at a time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.schedule = world.schedule
        self.keep_ms: dict[str, int] = {}
        self.held: set[str] = set()
        self.suspects: Suspects | None = None
        if Fault.ISOLATION in world.scenario.faults:
            self.suspects = Suspects(world.schedule, world.lost)
            world.watch = self.suspects.note
        self.actions: dict[Fault, Callable[[], None]] = {
            Fault.REQUEUE: self._requeue,
            Fault.GIVE_BACK: self._give_back,
            Fault.STANDSTILL: self._stand_still,
            Fault.SHARES: self._set_share,
            Fault.RETENTION: self._retain,
            Fault.DELETE_REQUEST: self._delete_data,
        }

    def start(self) -> None:
        """Schedule the control tasks, if the history has them."""
        if self.suspects is not None or Fault.DELETE_REQUEST in self.world.scenario.faults:
            self.world.after(CONTROL_S, self._control)

    def _control(self, _: object) -> None:
        self.world.after(CONTROL_S, self._control)
        if self.world.is_away():
            return
        if self.suspects is not None:
            self._isolate(self.suspects)
        compacted = [block for block in self.schedule.blocks.values() if block.level > 0 and block.state in LIVE_BLOCKS]
        for mask in self.schedule.masks:
            if any(is_about(mask, block) for block in compacted):
                self.world.run_action(partial(removal.rewrite_masked, self.schedule, mask), tenant=mask.tenant)

    # Parked jobs

    def _parked(self) -> list[MemoryJob]:
        return [job for job in self.schedule.jobs.values() if job.state is JobState.PARKED]

    def _requeue(self) -> None:
        """Requeue a parked job; for a quarantined block this is its release."""
        parked = self._parked()
        if parked and self._room() > 0:
            job = self.world.random.choice(parked)
            self.world.run_action(lambda: self.schedule.requeue(job), tenant=job.tenant)

    def _give_back(self) -> None:
        parked = [job for job in self._parked() if job.parked_kind != ParkedKind.QUARANTINED]
        if parked:
            job = self.world.random.choice(parked)
            self.world.run_action(lambda: actions.give_back(self.schedule, job.name), tenant=job.tenant)

    def _room(self) -> int:
        limit = self.schedule.limits.queue_max
        return limit - self.schedule.live_job_count if limit else 1_000_000

    # Bad blocks

    def _isolate(self, suspects: Suspects) -> None:
        """Run one step of the isolation of bad blocks by the shipped rules."""
        breakages = find_breakages(suspects.recent())
        for job in [job for job in self._parked() if job.parked_kind == ParkedKind.EVICTED]:
            suspect = suspects.suspect(job)
            decision = judge(suspect, breakages)
            if isinstance(decision, Split) and self._room() >= len(decision.parts):
                self._split(job, decision.parts)
            elif isinstance(decision, QuarantineMissing):
                self._quarantine_missing(job, decision.positions)
            elif isinstance(decision, QuarantineBlock):
                self._quarantine(job, f"quarantined as damaged: {decision.run.error_class}")

    def _split(self, job: MemoryJob, parts: Sequence[Sequence[int]]) -> list[MemoryJob]:
        return self.world.run_action(lambda: actions.split(self.schedule, job.name, parts), tenant=job.tenant)

    def _quarantine_missing(self, job: MemoryJob, missing: Sequence[int]) -> None:
        if len(job.sources) == 1:
            self._quarantine(job, "quarantined as missing")
            return
        rest = [place for place in range(len(job.sources)) if place not in missing]
        parts = [part for part in (rest, *([place] for place in missing)) if part]
        if self._room() >= len(parts):
            for child in self._split(job, parts)[-len(missing) :]:
                self._quarantine(child, "quarantined as missing")

    def _quarantine(self, job: MemoryJob, reason: str) -> None:
        self.world.run_action(lambda: actions.quarantine(self.schedule, job.name, reason), tenant=job.tenant)

    # Limits

    def _stand_still(self) -> None:
        """Pause or drain a scope, or lift all pauses."""
        draw = self.world.random
        scopes = [
            PausedScope(ScopeKind.GLOBAL),
            PausedScope(ScopeKind.LANE, LANE),
            *(PausedScope(ScopeKind.TENANT, tenant) for tenant in sorted(self.schedule.queues.tenants)),
            *(PausedScope(ScopeKind.LEVEL, str(level)) for level in range(3)),
        ]
        chosen = [replace(scope, mode=draw.choice(list(PauseMode))) for scope in draw.sample(scopes, 1)]
        paused = () if self.schedule.paused else tuple(chosen)
        tenant = chosen[0].value if paused and chosen[0].kind is ScopeKind.TENANT else None
        self.world.run_action(lambda: actions.set_paused(self.schedule, paused), tenant=tenant)

    def _set_share(self) -> None:
        draw, schedule = self.world.random, self.schedule
        if schedule.queues.tenants:
            tenant = draw.choice(sorted(schedule.queues.tenants))
            weight, running_max = draw.choice([1, 100, 1000]), draw.choice([0, 0, 1, 3])
            self.world.run_action(lambda: actions.set_share(schedule, tenant, weight, running_max), tenant=tenant)

    # Removal

    def _tenants(self) -> list[str]:
        return sorted({key[0] for key in self.world.audit.accepted})

    def _retain(self) -> None:
        """Change a retention period or a hold, then drop expired data slice by slice."""
        draw, tenants = self.world.random, self._tenants()
        if not tenants:
            return
        tenant = draw.choice(tenants)
        if draw.random() < 0.3:
            self.held ^= {tenant}
        else:
            self.keep_ms[tenant] = draw.choice(KEEP_MS)
        policy = RetentionPolicy(
            default_ms=draw.choice(KEEP_MS),
            tenants=dict(self.keep_ms),
            held=frozenset(self.held),
            grace_ms=removal.GRACE_MS,
        )
        waits = self.world.scenario.sabotage is not Sabotage.GRACE
        for part in removal.plan(self.schedule, policy, waits_for_grace=waits).expired:
            action = partial(removal.drop_part, self.schedule, part)
            self.world.run_action(action, tenant=part.tenant, part=part, policy=policy)

    def _delete_data(self) -> None:
        """Request the deletion of a tenant's data, of one service or all."""
        draw, schedule = self.world.random, self.schedule
        datasets = sorted(key for key in self.world.audit.accepted if key[0] not in self.held)
        if datasets:
            tenant, service = draw.choice(datasets)
            service = draw.choice(["", service])
            self.world.run_action(lambda: removal.request_deletion(schedule, tenant, service), tenant=tenant)
