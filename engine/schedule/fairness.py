"""Share the offered capacity between lanes, and in a lane between tenants, by weight: start-time fair queueing.

A lane or tenant that is served pays cost ÷ weight in virtual time; the one with the smallest virtual time is next.

1. A lane or tenant that was idle starts at the virtual time of the one served last: idleness earns no credit, and a
   newcomer is served before anyone gets two jobs more than its share.
2. A tenant or lane at its cap is passed over; it loses nothing of its place, and gains nothing.
3. Among the work of one tenant the least (priority, name) comes first.
4. The same input gives the same order; nothing depends on the order in which candidates are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from engine.core.quick_values import quickly_built
from engine.schedule.priority_queue import PriorityQueue

WEIGHT_DEFAULT = 1
"""The weight of a lane or tenant for which no operator has set one."""
COST_BYTES_MIN = 1 << 20
"""The cost of the smallest job, so that many tiny jobs are not free."""
TIME_PER_KIB = 1000
"""Virtual time for a KiB at weight 1: small enough for an exabyte in 63 bits, fine enough for great weights."""

Work = TypeVar("Work")


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class TenantView:
    """A tenant's share of a lane; a ``…_max`` of 0 is no cap. ``virtual_time`` is what it has paid so far."""

    lane: str
    tenant: str
    weight: int = WEIGHT_DEFAULT
    virtual_time: int = 0
    running_count: int = 0
    running_max: int = 0
    running_bytes: int = 0
    running_bytes_max: int = 0


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """A lane's share of the fleet. ``tenant_time`` is the virtual time at which its tenants were served last;
    ``virtual_time`` is what the lane has paid, ``started_time`` what it had paid before it was served last."""

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


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Generic[Work]):
    """Work that could be given out now. ``is_running`` says that it counts against the caps already (a takeover)."""

    lane: str
    tenant: str
    priority_ms: int
    name: str
    size_bytes: int
    work: Work
    is_running: bool = False


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class TenantCharge:
    """The new virtual time of a tenant that was served."""

    lane: str
    tenant: str
    virtual_time: int


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class LaneCharge:
    """The new times of a lane that was served."""

    lane: str
    tenant_time: int
    virtual_time: int
    started_time: int


@dataclass(slots=True)
class _Caps:
    """What runs already, against what may run at once."""

    count: int
    count_max: int
    bytes: int
    bytes_max: int

    def allow(self, size_bytes: int) -> bool:
        """Say whether one more job fits; a job that is larger than the cap by itself runs alone."""
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
        """Queue a tenant by the virtual time that it has paid, then by the priority of its first candidate."""
        if tenant.waiting:
            self.order.push(tenant.time, tenant.waiting.peek()[0], tenant.name, tenant)


class FairShare(Generic[Work]):
    """Yields candidates one by one in fair order; ``charges`` are the new virtual times at the end."""

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
        """Yield the next candidate. It is paid for by ``charge``; a candidate that is not charged was declined."""
        while (found := self._next()) is not None:
            lane, tenant, candidate = found
            yield candidate
            lane.put_back(tenant)

    def charge(self, candidate: Candidate[Work]) -> None:
        """Let the tenant and the lane pay for work that was given out."""
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
        """Return the new times of those that were served, in the order of their names."""
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
        """Take the next candidate; its tenant is out of the lane's order until it is put back."""
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
    """Take the tenant's first candidate that its caps and the lane's allow. Caps only get tighter: the others go."""
    while tenant.waiting:
        candidate = tenant.waiting.pop()
        size = candidate.size_bytes
        if candidate.is_running or (lane.caps.allow(size) and tenant.caps.allow(size)):
            return candidate
    return None
