"""What a poll reads of jobs that were made ahead: a few of each needy tenant, however many wait."""

from __future__ import annotations

from engine.schedule.model import JobState
from tests.webadmin.service import Service
from webadmin.schedule.fairness_models import TenantShare
from webadmin.schedule.models import Job
from webadmin.schedule.polls.opening import open_poll
from webadmin.schedule.polls.waiting_ahead import OTHERS, waiting_ahead

HOUR_MS = 3_600_000


def make(tenant: str, count: int) -> None:
    """Let jobs of a tenant wait, the first one before all others of it."""
    interval = {"bucket": "b", "range_ms": 2 * HOUR_MS, "partition": 0, "sources": [], "group_id": 1}
    Job.objects.bulk_create(
        Job(
            name=f"{tenant}-{number:03d}",
            lane="tsdb",
            tenant=tenant,
            shard=0,
            level=1,
            state=JobState.WAITING,
            added_at_ms=0,
            priority_ms=number,
            created_command_index=1,
            source_count=2,
            source_bytes=1,
            spec=interval | {"start_ms": number * 2 * HOUR_MS},
        )
        for number in range(count)
    )


def found(count: int) -> list[str]:
    return [job.name for job in waiting_ahead(Job.objects.filter(state=JobState.WAITING), "worker", open_poll(), count)]


def test_a_tenant_with_many_jobs_hides_no_other(service: Service) -> None:
    make("large", 100)
    make("small", 1)
    assert found(2) == ["large-000", "small-000", "large-001"]


def test_what_is_read_is_bounded_by_what_is_wanted(service: Service) -> None:
    for number in range(20):
        make(f"tenant{number:02d}", 10)
    assert len({name.split("-")[0] for name in found(2)}) == 2 * OTHERS
    assert len(found(2)) == 2 * OTHERS * 2


def test_the_tenant_with_the_least_service_comes_first(service: Service) -> None:
    for number in range(20):
        make(f"tenant{number:02d}", 1)
        TenantShare.objects.create(lane="tsdb", tenant=f"tenant{number:02d}", virtual_time=-number)
    assert found(1) == [f"tenant{number:02d}-000" for number in (16, 17, 18, 19)]
