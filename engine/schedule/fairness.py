"""Share capacity between lanes, and within a lane between tenants, by weight: start-time fair queueing.

Serving a lane or tenant adds cost ÷ weight to its virtual time; the one with the smallest virtual time is next.

1. A lane or tenant that was idle starts at the virtual time of the one served last: idle time earns no credit, and a
   new tenant is served before any other exceeds its share by two jobs.
2. A tenant or lane at its cap is skipped; its virtual time does not change.
3. The work of one tenant is served by (priority, name), lowest first.
4. The result is deterministic and does not depend on the order of the candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from engine.core.fast_dataclasses import fast_init
from engine.schedule.priority_queue import PriorityQueue

WEIGHT_DEFAULT = 1
"""Default weight of a lane or tenant."""
COST_BYTES_MIN = 1 << 20
"""Minimum cost of a job in bytes, so that many small jobs are not free."""
TIME_PER_KIB = 1000
"""Virtual time per KiB at weight 1: an exabyte fits into 63 bits, and large weights keep their resolution."""

Work = TypeVar("Work")


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class TenantView:
    """A tenant's share of a lane; a ``…_max`` of 0 is no cap. ``virtual_time`` is the sum of its charges."""

    lane: str
    tenant: str
    weight: int = WEIGHT_DEFAULT
    virtual_time: int = 0
    running_count: int = 0
    running_max: int = 0
    running_bytes: int = 0
    running_bytes_max: int = 0


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """A lane's share of the fleet.

    ``tenant_time`` is the virtual time at which one of its tenants was served last. ``virtual_time`` is the sum of the
    lane's charges, ``started_time`` that sum before the lane was served last.
    """

    lane: str
    weight: int = WEIGHT_DEFAULT
    tenant_time: int = 0
    virtual_time: int = 0
    started_time: int = 0
    running_count: int = 0
    running_max: int = 0
    running_bytes: int = 0
    running_bytes_max: int = 0
    live_job_count: int = 0
    queue_max: int = 0


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Generic[Work]):
    """Work that can be assigned. ``is_running``: it already counts against the caps (takeover of an expired job)."""

    lane: str
    tenant: str
    priority_ms: int
    name: str
    size_bytes: int
    work: Work
    is_running: bool = False


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class TenantCharge:
    """The new virtual time of a served tenant."""

    lane: str
    tenant: str
    virtual_time: int


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class LaneCharge:
    """The new virtual times of a served lane."""

    lane: str
    tenant_time: int
    virtual_time: int
    started_time: int


@dataclass(slots=True)
class _Caps:
    """Running jobs and bytes with their caps (0: no cap)."""

    count: int
    count_max: int
    bytes: int
    bytes_max: int

    def allow(self, size_bytes: int) -> bool:
        """Return whether one more job fits; a job larger than the byte cap runs alone."""
        if 0 < self.count_max <= self.count:
            return False
        return self.bytes_max == 0 or self.bytes == 0 or self.bytes + size_bytes <= self.bytes_max

    def add(self, size_bytes: int) -> None:
        self.count += 1
        self.bytes += size_bytes


@dataclass(slots=True)
class _Tenant(Generic[Work]):
    name: str
    weight: int
    time: int
    caps: _Caps
    waiting: PriorityQueue[Candidate[Work]] = field(default_factory=PriorityQueue)  # by priority and name
    is_served: bool = False


@dataclass(slots=True)
class _Lane(Generic[Work]):
    view: LaneView
    time: int
    started_time: int
    tenant_time: int
    caps: _Caps
    tenants: dict[str, _Tenant[Work]] = field(default_factory=dict)
    order: PriorityQueue[_Tenant[Work]] = field(default_factory=PriorityQueue)
    is_served: bool = False

    def put_back(self, tenant: _Tenant[Work]) -> None:
        """Queue a tenant by its virtual time, then by the priority of its first candidate."""
        if tenant.waiting:
            self.order.push(tenant.time, tenant.waiting.peek()[0], tenant.name, tenant)


class FairShare(Generic[Work]):
    """Iterate over candidates in fair order; ``charges`` returns the new virtual times at the end."""

    def __init__(
        self, lanes: Iterable[LaneView], tenants: Iterable[TenantView], candidates: Iterable[Candidate[Work]]
    ) -> None:
        views = {view.lane: view for view in lanes}
        shares = {(view.lane, view.tenant): view for view in tenants}
        newest_start = max((view.started_time for view in views.values()), default=0)
        self._lanes: dict[str, _Lane[Work]] = {}
        for candidate in candidates:
            lane = self._lanes.get(candidate.lane)
            if lane is None:
                view = views.get(candidate.lane) or LaneView(lane=candidate.lane)
                lane = self._lanes[candidate.lane] = _open_lane(view, newest_start)
            tenant = lane.tenants.get(candidate.tenant)
            if tenant is None:
                share = shares.get((candidate.lane, candidate.tenant))
                share = share or TenantView(lane=candidate.lane, tenant=candidate.tenant)
                tenant = lane.tenants[candidate.tenant] = _open_tenant(share, lane.tenant_time)
            tenant.waiting.push(candidate.priority_ms, 0, candidate.name, candidate)
        for lane in self._lanes.values():
            for tenant in lane.tenants.values():
                lane.put_back(tenant)

    def __iter__(self) -> Iterator[Candidate[Work]]:
        """Yield the next candidate. The caller charges the candidates it accepts with ``charge``."""
        while (found := self._next()) is not None:
            lane, tenant, candidate = found
            yield candidate
            lane.put_back(tenant)

    def charge(self, candidate: Candidate[Work]) -> None:
        """Charge the tenant and the lane for assigned work."""
        lane = self._lanes[candidate.lane]
        tenant = lane.tenants[candidate.tenant]
        cost = (max(candidate.size_bytes, COST_BYTES_MIN) >> 10) * TIME_PER_KIB
        lane.tenant_time, lane.started_time = max(lane.tenant_time, tenant.time), max(lane.started_time, lane.time)
        tenant.time += cost // tenant.weight
        lane.time += cost // lane.view.weight
        lane.is_served = tenant.is_served = True
        if not candidate.is_running:
            lane.caps.add(candidate.size_bytes)
            tenant.caps.add(candidate.size_bytes)

    def charges(self) -> tuple[tuple[TenantCharge, ...], tuple[LaneCharge, ...]]:
        """Return the new virtual times of served tenants and lanes, sorted by name."""
        lanes = [lane for _, lane in sorted(self._lanes.items()) if lane.is_served]
        return (
            tuple(
                TenantCharge(lane=lane.view.lane, tenant=name, virtual_time=tenant.time)
                for lane in lanes
                for name, tenant in sorted(lane.tenants.items())
                if tenant.is_served
            ),
            tuple(
                LaneCharge(
                    lane=lane.view.lane,
                    tenant_time=lane.tenant_time,
                    virtual_time=lane.time,
                    started_time=lane.started_time,
                )
                for lane in lanes
            ),
        )

    def _next(self) -> tuple[_Lane[Work], _Tenant[Work], Candidate[Work]] | None:
        """Remove the next candidate; its tenant leaves the lane's queue until ``put_back``."""
        for lane in sorted(self._lanes.values(), key=lambda lane: (lane.time, lane.view.lane)):
            while lane.order:
                tenant = lane.order.pop()
                if (found := _first_within_caps(lane, tenant)) is not None:
                    return lane, tenant, found
        return None


def _open_lane(view: LaneView, newest_start: int) -> _Lane[Work]:
    return _Lane(
        view=view,
        time=max(view.virtual_time, newest_start),
        started_time=view.started_time,
        tenant_time=view.tenant_time,
        caps=_caps(view),
    )


def _open_tenant(view: TenantView, tenant_time: int) -> _Tenant[Work]:
    return _Tenant(
        name=view.tenant,
        weight=view.weight,
        time=max(view.virtual_time, tenant_time),
        caps=_caps(view),
    )


def _caps(view: LaneView | TenantView) -> _Caps:
    return _Caps(view.running_count, view.running_max, view.running_bytes, view.running_bytes_max)


def _first_within_caps(lane: _Lane[Work], tenant: _Tenant[Work]) -> Candidate[Work] | None:
    """Remove and return the tenant's first candidate within both caps.

    Candidates above a cap are discarded: caps only become tighter during a poll.
    """
    while tenant.waiting:
        candidate = tenant.waiting.pop()
        size = candidate.size_bytes
        if candidate.is_running or (lane.caps.allow(size) and tenant.caps.allow(size)):
            return candidate
    return None
