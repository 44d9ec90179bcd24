"""Read the present load and compute the capacity it needs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from engine.schedule.advice import Advice, Load, advise
from webadmin.progress.facts import read_standstill
from webadmin.progress.report import progress_report
from webadmin.schedule.command_log import read_time
from webadmin.schedule.lanes import lanes
from webadmin.schedule.models import Job
from webadmin.schedule.queries import limits_now

RECENT_JOBS = 200


def advice_now(*, window_seconds: int, clear_seconds: int, slots_per_node: int) -> Advice:
    """Return the capacity for the arrivals of the last ``window_seconds`` and the backlog in ``clear_seconds``."""
    report = progress_report(window_seconds=window_seconds, with_lanes=False)
    flow, limits = report.everything.flow, limits_now(read_time().now_ms)
    load = Load(
        arrived_bytes_per_second=flow.per_second(flow.arrived_bytes),
        seconds_per_byte=flow.seconds_per_byte(),
        is_measured=flow.run_ms > 0 and flow.drained_bytes > flow.dropped_bytes,
        backlog_bytes=report.everything.backlog.bytes,
        job_bytes_max=_largest_job(),
        task_memory_bytes=limits.task_memory_bytes,
        cleanup_delay_seconds=limits.cleanup_delay_seconds,
        offered_slots=_slots_now(),
    )
    return advise(load, clear_seconds=clear_seconds, slots_per_node=slots_per_node)


def advice_json(advice: Advice) -> dict[str, Any]:
    """Return the JSON form of the advice."""
    return asdict(advice) | {"notes": list(advice.notes)}


def _largest_job() -> int:
    """Return the largest number of source bytes of a recent job, otherwise the maximum that policies allow."""
    recent = Job.objects.order_by("-id").values_list("source_bytes", flat=True)[:RECENT_JOBS]
    return max([*recent, *(lane.job_bytes_max() for lane in lanes())], default=0)


def _slots_now() -> int:
    """Return the slots of the workers that poll, free and in use."""
    facts = read_standstill()
    return facts.offered_capacity + facts.leased_jobs
