"""What a poll costs: a number of queries that depends on capacity and reports only, each of them by an index."""

from __future__ import annotations

import pytest
from django.db import connection, models
from django.test.utils import CaptureQueriesContext

from engine.schedule.model import JobState
from tests.block_factory import block_meta, ulid
from tests.webadmin.service import FakeWorker, Service
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import AcceptedId, Block
from webadmin.schedule.fairness_models import TenantShare
from webadmin.schedule.models import Attempt, Job

BACKLOG = 100_000
IDLE_QUERIES_MAX = 3
"""The worker, the head with what holds for everything, and the limits that were set; the clock of tests is no query."""
PLANNING_QUERIES_MAX = 34
"""A poll that plans, from a worker whose capacity is new, with the statements that begin and end its transactions."""


def queries_of(worker: FakeWorker, *updates, capacity: int) -> int:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        worker.poll(*updates, capacity=capacity)
    return len(captured)


def replace_backlog(service: Service, count: int, queue_count: int) -> None:
    """Make exactly this many queued blocks, the short way: rows as add_blocks would have left them."""
    for model in (Attempt, Block, Job, AcceptedId, LevelQueue):
        model.objects.all().delete()
    service.add_segments(1)
    block, first = Block.objects.get(), LevelQueue.objects.get()
    first.block_count, first.byte_count = count // queue_count, count // queue_count * block.size_bytes
    first.ready_at_ms = first.oldest_arrival_ms
    first.save()
    LevelQueue.objects.bulk_create(
        LevelQueue(**LevelQueue.objects.values().get(id=first.id) | {"id": first.id + n, "shard": 1 + n})
        for n in range(1, queue_count)
    )
    made = {
        "ulid": "substr(ulid, 1, 16) || substr(CAST(15000000000 + i AS TEXT), 2)",
        "shard": f"1 + i % {queue_count}",
        "queue_id": f"queue_id + i % {queue_count}",
    }
    columns = [field.column for field in Block._meta.concrete_fields if field.column != "id"]
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO profiles_block ({', '.join(columns)}) "
            f"WITH RECURSIVE numbers(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbers WHERE i < {count - 1}) "
            f"SELECT {', '.join(made.get(column, column) for column in columns)} FROM profiles_block, numbers"
        )
    block.datasets.all().delete()
    block.delete()


def test_an_idle_poll_costs_a_fixed_small_number_of_queries(service: Service) -> None:
    worker = service.worker()
    worker.poll(capacity=4)
    assert queries_of(worker, capacity=4) <= IDLE_QUERIES_MAX


def test_renewing_many_leases_costs_as_many_queries_as_renewing_one(service: Service) -> None:
    for shard in range(1, 13):
        service.add_segments(20, shard=shard)
    worker = service.worker()
    jobs = [spec.job for spec in worker.take(12)]
    worker.poll(capacity=0)
    one = queries_of(worker, worker.running(jobs[0]), capacity=0)
    assert queries_of(worker, *map(worker.running, jobs), capacity=0) == one


def test_completing_many_jobs_costs_as_many_queries_as_completing_one(service: Service) -> None:
    for shard in range(1, 12):
        service.add_segments(20, shard=shard)
    worker = service.worker()
    jobs = [spec.job for spec in worker.take(11)]
    for shard in range(1, 12):  # results join queues that exist
        service.add(block_meta(ulid(service.clock.now_ms, 900 + shard), shard=shard, level=1, tenant="acme"))
    worker.poll(worker.success(jobs[0]), capacity=0)
    one = queries_of(worker, worker.success(jobs[1]), capacity=0)
    assert queries_of(worker, *map(worker.success, jobs[2:]), capacity=0) == one
    assert Job.objects.filter(state=JobState.DONE).count() == len(jobs)


def test_a_backlog_does_not_change_the_cost_of_a_poll(service: Service) -> None:
    worker = service.worker()
    worker.poll(capacity=2)
    replace_backlog(service, 40, queue_count=2)
    small = queries_of(worker, capacity=2)
    replace_backlog(service, BACKLOG, queue_count=50)
    large = queries_of(worker, capacity=2)
    assert Job.objects.count() == 2
    assert max(small, large) <= PLANNING_QUERIES_MAX
    assert queries_of(worker, capacity=12) <= PLANNING_QUERIES_MAX, "further jobs cost rows, not queries"


@pytest.mark.parametrize(
    ("rows", "index"),
    [
        (Block.objects.queued_in(7), "block_in_queue"),
        (
            LevelQueue.objects.filter(block_count__gt=0, is_marked_ready=False, ready_at_ms__lte=9).order_by(
                "ready_at_ms", "id"
            ),
            "level_queue_ready",
        ),
        (
            LevelQueue.objects.filter(
                block_count__gt=0, is_marked_ready=True, lane="profiles", tenant="acme", ready_at_ms__lte=9
            ).order_by("priority_ms", "id"),
            "level_queue_of_tenant",
        ),
        (
            TenantShare.objects.filter(lane="profiles", is_awake=True).order_by("virtual_time", "tenant"),
            "tenant_share_neediest",
        ),
        (
            Job.objects.filter(state=JobState.WAITING, lane="profiles").order_by("priority_ms", "name"),
            "job_waiting_in_order",
        ),
        (
            Job.objects.filter(state=JobState.LEASED, lease_expires_ms__lt=9).order_by("lease_expires_ms"),
            "job_leased_by_expiry",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_question_of_a_poll_has_its_index(db: None, rows: models.QuerySet, index: str) -> None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            # Tables of a test are so small that reading them whole is cheaper; the question is whether the index fits.
            cursor.execute(
                "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off"
            )
    plan = rows[:5].explain()
    assert index in plan
    assert "TEMP B-TREE" not in plan
    assert "Sort" not in plan


def test_no_index_of_blocks_stands_on_what_the_end_of_a_job_changes() -> None:
    changed = {"state", "removed_command_index", "metadata"}
    for index in (*Block._meta.indexes, *Block._meta.constraints):
        if isinstance(index, models.CheckConstraint):
            continue
        names = {name.lstrip("-") for name in index.fields}
        names |= index.condition.referenced_base_fields if index.condition else set()
        assert not names & changed, f"{index.name}: each replaced block would write all indexes of its table"
