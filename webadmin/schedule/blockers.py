"""Why jobs are not assigned although workers poll: caps that are reached, and pins to workers that do not poll.

Jobs that no worker may take do not count against the queue limit: they might wait without end, and would block all
other work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Sum

from engine.schedule.builds import is_newer
from engine.schedule.limits import EffectiveLimits, LimitName, ScopeKind
from engine.schedule.model import JobState
from engine.schedule.pauses import PausedScope, PauseMode
from webadmin.schedule.models import Job, Worker
from webadmin.schedule.operation_models import JobPin, LimitChange
from webadmin.schedule.operator_queries import polling_workers
from webadmin.schedule.pauses import COLUMNS
from webadmin.schedule.queries import effective_limits

CAPS = (LimitName.RUNNING_MAX, LimitName.RUNNING_BYTES_MAX)


def unclaimable_jobs(paused: Iterable[PausedScope], *, wall_ms: int) -> QuerySet[Job]:
    """Return the waiting jobs that no polling worker may take: paused, or pinned to workers that do not poll."""
    held = Q(pk__in=[])
    for scope in paused:
        if scope.mode is PauseMode.PAUSE:
            held |= Q(pk__isnull=False) if scope.kind is ScopeKind.GLOBAL else Q(**{COLUMNS[scope.kind]: scope.value})
    waiting = Job.objects.filter(state=JobState.WAITING)
    return waiting.filter(held | Q(Exists(_unmatched_pins(wall_ms).filter(job=OuterRef("pk")))))


def jobs_with_unmatched_pins(*, wall_ms: int) -> QuerySet[Job]:
    """Return the waiting jobs whose pins match no polling worker."""
    return unclaimable_jobs((), wall_ms=wall_ms)


def pin_words(job: Job, *, wall_ms: int) -> str:
    """Return which workers, none of which polls, a job is pinned to, as text; "" if one of them polls."""
    pins = _unmatched_pins(wall_ms).filter(job=job).order_by("kind", "value")
    return " and ".join(_words(pin) for pin in pins)


def cap_words(now_ms: int, *, lane: str, tenant: str) -> str:
    """Return the cap that prevents more jobs of this lane and tenant from running now, as text; "" if none does."""
    return "".join(caps_reached(now_ms, [(lane, tenant)]))


def caps_reached(now_ms: int, places: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return, as text, the caps that are reached among these lanes and tenants, of each the first.

    At most four queries, whatever their number.
    """
    if not LimitChange.objects.filter(name__in=CAPS, is_superseded=False).exists():
        return ()
    keys = sorted(set(places))
    limits = effective_limits(now_ms, tenants=[tenant for _, tenant in keys])
    leased = Job.objects.filter(state=JobState.LEASED).order_by()
    sums = {"count": Count("id"), "size": Sum("source_bytes", default=0)}
    of_lane: dict[str, Mapping[str, Any]] = {row["lane"]: row for row in leased.values("lane").annotate(**sums)}
    tenants = leased.filter(tenant__in=[tenant for _, tenant in keys])
    in_lanes = tenants.values("lane", "tenant").annotate(**sums)
    of_tenant: dict[tuple[str, str], Mapping[str, Any]] = {(row["lane"], row["tenant"]): row for row in in_lanes}
    words = [
        _cap_text(f"tenant {tenant or 'of segments'}", limits, {"tenant": tenant}, of_tenant.get((lane, tenant)))
        or _cap_text(f"lane {lane}", limits, {"lane": lane}, of_lane.get(lane))
        for lane, tenant in keys
    ]
    return tuple(dict.fromkeys(word for word in words if word))


def _cap_text(name: str, limits: EffectiveLimits, scope: Mapping[str, str], running: Mapping[str, Any] | None) -> str:
    jobs_max, bytes_max = (limits.value(cap, 0, **scope) for cap in CAPS)
    if running is None:  # no job runs there
        return ""
    if 0 < jobs_max <= running["count"]:
        return f"{name} runs {running['count']} of the {jobs_max} jobs it may"
    if 0 < bytes_max <= running["size"]:
        return f"{name} runs jobs of {running['size']} of the {bytes_max} bytes it may"
    return ""


def _unmatched_pins(wall_ms: int) -> QuerySet[JobPin]:
    """Return the pins that exclude every polling worker."""
    kinds = JobPin.Kind
    if not (rules := set(JobPin.objects.values_list("kind", "value").distinct())):
        return JobPin.objects.none()
    polling = polling_workers(Worker.objects.all(), datetime.fromtimestamp(wall_ms / 1000, UTC))
    there: Sequence[tuple[str, str]] = list(polling.values_list("name", "build"))
    fits: dict[str, Callable[[str, str, str], bool]] = {
        kinds.WORKER: lambda value, name, build: name == value,
        kinds.NEWER_THAN: lambda value, name, build: is_newer(build, value),
        kinds.NOT_BUILD: lambda value, name, build: build != value,
    }
    unfit = Q(pk__in=[])
    for kind, value in rules:
        if not any(fits[kinds(kind)](value, name, build) for name, build in there):
            unfit |= Q(kind=kind, value=value)
    return JobPin.objects.filter(unfit)


def _words(pin: JobPin) -> str:
    if pin.kind == JobPin.Kind.WORKER:
        return f"worker {pin.value}, which does not poll"
    if pin.kind == JobPin.Kind.NEWER_THAN:
        return f"a newer build than {pin.value or 'an unnamed one'}, and none polls"
    return f"another build than {pin.value}, and none polls"
