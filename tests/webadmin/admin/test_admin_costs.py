"""What a list costs does not depend on how many rows it shows, nor on how many there are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from engine.core import ulids
from tests.webadmin.admin import rows
from webadmin.adminkit.paginator import BoundedPaginator
from webadmin.base.access.models import AuditEntry
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.models import Block, DeadLetter, DeletionCertificate, LegalHold, RetentionRule, Tombstone
from webadmin.lanes.profiles.operator_queries import blocks_between, find_blocks
from webadmin.schedule.models import Command, Job
from webadmin.schedule.operation_models import LimitChange, Pause
from webadmin.schedule.operator_queries import jobs_for_list

QUERIES_OF_A_LIST_MAX = 9
"""Session, user, command time (3), rows, their count, and room for what a list adds."""
QUERIES_OF_THE_FRONT_PAGE_MAX = 50
QUERIES_OF_PROGRESS_MAX = 32
"""Each lane is asked once what waits, what stands still and what is stuck."""


def many_blocks(count: int) -> None:
    job = rows.make_job(f"holder of {count}", "leased")
    for number in range(count):
        rows.make_block("owned" if number % 2 else "queued", owner_job=job if number % 2 else None)
        rows.make_block("final", tenant=f"tenant-{number % 7}", level=3)


def many_jobs(count: int) -> None:
    states = ("waiting", "leased", "parked", "done")
    for number in range(count):
        job = rows.make_job(f"job {number} of {count}", states[number % 4])
        rows.make_attempt(job, "failed", 1000 + number)


def many_queues(count: int) -> None:
    for number in range(count):
        rows.make_queue(f"tenant-{number % 9}", shard=number, level=number % 4)


def many_workers(count: int) -> None:
    for number in range(count):
        worker = rows.make_worker(f"node-{number}")
        if number % 3 == 0:
            rows.make_job(f"held by {worker} of {count}", "leased", worker=worker)


def many_tombstones(count: int) -> None:
    job = rows.make_job(f"done {count}", "done")
    for _ in range(count):
        block = rows.make_block("replaced", owner_job=job)
        Tombstone.objects.create(block=block, job=job, command_index=1, created_at_ms=1, eligible_at_ms=2)


def many_commands(count: int) -> None:
    for _ in range(count):
        rows.make_command()


def many_tenants(count: int) -> None:
    for number in range(count):
        rows.make_tenant(f"tenant-{number}")


def many_entries(count: int) -> None:
    AuditEntry.objects.bulk_create([AuditEntry(actor="a", action="b") for _ in range(count)])


def many_parked(count: int) -> None:
    for number in range(count):
        job = rows.make_job(f"parked {number} of {count}", "parked")
        rows.make_attempt(job, "failed", 1000 + number, reason={"error_class": "BadObject", "message": "m"})


def many_quarantined(count: int) -> None:
    for _ in range(count):
        rows.make_quarantine()


def many_pauses(count: int) -> None:
    rows.now_ms()
    for number in range(count):
        Pause.objects.create(
            scope_kind="tenant",
            scope_value=f"t{number} of {count}",
            mode="pause",
            since_ms=1,
            command_index=1,
            actor="a",
        )


def many_limits(count: int) -> None:
    rows.now_ms()
    for number in range(count):
        LimitChange.objects.create(
            name="weight",
            scope_kind="tenant",
            scope_value=f"t{number}",
            value=2,
            set_at_ms=1,
            command_index=1,
            actor="a",
        )


def many_letters(count: int) -> None:
    for number in range(count):
        DeadLetter.objects.create(
            key=f"dlq/{number}/{count}",
            shard=1,
            ulid="01KAJ5W5T0000000000000000A",
            size_bytes=1,
            written_at_ms=1,
            first_attempt_ms=1,
            last_attempt_ms=1,
        )


def many_requests(count: int) -> None:
    for number in range(count):
        request = rows.make_request(f"tenant-{number % 7}")
        DeletionCertificate.objects.create(request=request, command_index=1, issued_at_ms=1)


def many_rules(count: int) -> None:
    for number in range(count):
        RetentionRule.objects.get_or_create(tenant=f"t{number}", defaults={"keep_days": 7, "actor": "a", "why": "w"})


def many_holds(count: int) -> None:
    for number in range(count):
        LegalHold.objects.get_or_create(tenant=f"t{number}", ended_at=None, defaults={"actor": "a", "why": "w"})


def many_policies(count: int) -> None:
    everybody = LevelPolicy.objects.filter(tenant="", level=1).values().get()
    for number in range(count):
        tenant = {"tenant": f"t{number} of {count}", "id": None}
        LevelPolicy.objects.create(**everybody | tenant)


LISTS: dict[str, Callable[[int], None]] = {
    "progress_parkedjob": many_parked,
    "profiles_quarantine": many_quarantined,
    "schedule_pause": many_pauses,
    "schedule_limitchange": many_limits,
    "profiles_deadletter": many_letters,
    "profiles_deleterequest": many_requests,
    "profiles_retentionrule": many_rules,
    "profiles_legalhold": many_holds,
    "profiles_levelpolicy": many_policies,
    "profiles_block": many_blocks,
    "profiles_tombstone": many_tombstones,
    "schedule_job": many_jobs,
    "profiles_levelqueue": many_queues,
    "schedule_worker": many_workers,
    "schedule_command": many_commands,
    "access_tenant": many_tenants,
    "access_workercredential": many_workers,
    "access_auditentry": many_entries,
}


def queries_of(operator: Client, address: str) -> list[str]:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert operator.get(address).status_code == 200
    return [query["sql"] for query in captured]


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_a_hundred_rows_costs_as_many_queries_as_one_of_three(operator: Client, name: str) -> None:
    address = reverse(f"admin:{name}_changelist")
    LISTS[name](3)
    few = queries_of(operator, address)
    LISTS[name](100)
    many = queries_of(operator, address)
    assert len(many) == len(few)
    assert len(many) <= QUERIES_OF_A_LIST_MAX


def test_no_list_counts_a_whole_table(operator: Client) -> None:
    many_blocks(3)
    for name in LISTS:
        counts = [sql for sql in queries_of(operator, reverse(f"admin:{name}_changelist")) if "COUNT(*)" in sql]
        assert counts
        assert all("LIMIT" in sql for sql in counts), counts


def test_the_front_page_costs_the_same_with_a_full_schedule(operator: Client) -> None:
    many_jobs(4)
    few = queries_of(operator, "/admin/")
    many_jobs(60)
    many_queues(60)
    many_workers(30)
    many = queries_of(operator, "/admin/")
    assert len(many) <= len(few)
    assert len(many) <= QUERIES_OF_THE_FRONT_PAGE_MAX


@pytest.mark.parametrize("address", ["/admin/backlog/", "/admin/standstill/"])
def test_the_pages_of_progress_cost_the_same_with_a_full_schedule(operator: Client, address: str) -> None:
    many_jobs(4)
    few = queries_of(operator, address)
    many_jobs(60)
    many_queues(60)
    many_pauses(20)
    many_workers(30)
    many = queries_of(operator, address)
    assert len(many) <= len(few)
    assert len(many) <= QUERIES_OF_PROGRESS_MAX


def test_the_page_of_a_worker_costs_the_same_with_many_jobs(operator: Client) -> None:
    worker = rows.make_worker("busy")
    address = reverse("admin:schedule_worker_change", args=[worker.pk])
    few = queries_of(operator, address)
    for number in range(60):
        job = rows.make_job(f"held {number}", "leased", worker=worker)
        rows.make_attempt(job, "running", job.token, worker=worker)
    assert len(queries_of(operator, address)) <= len(few) <= QUERIES_OF_A_LIST_MAX + 2


def test_a_block_with_many_relatives_costs_a_few_queries_a_step(operator: Client) -> None:
    job = rows.make_job("merge", "done")
    result = rows.make_block("final", tenant="acme", level=3)
    rows.link(result, job, *(rows.make_block("replaced", owner_job=job) for _ in range(40)))
    assert len(queries_of(operator, reverse("admin:profiles_block_change", args=[result.pk]))) <= 14


def test_lists_end_at_the_row_limit(db: None) -> None:
    class ShortPaginator(BoundedPaginator):
        rows_reached_max = 10

    rows.make_command()
    for _ in range(9):
        rows.make_command()
    exact = ShortPaginator(Command.objects.order_by("-index"), 5)
    assert (exact.count, exact.num_pages, exact.is_cut) == (10, 2, False)
    rows.make_command()
    cut = ShortPaginator(Command.objects.order_by("-index"), 5)
    assert (cut.count, cut.num_pages, cut.is_cut) == (10, 2, True)


def test_a_cut_list_has_a_note(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedPaginator, "rows_reached_max", 3)
    for number in range(3):
        rows.make_job(f"job {number}")
    address = reverse("admin:schedule_job_changelist")
    assert "filter to see further back" not in operator.get(address).content.decode()
    rows.make_job("one more")
    assert "filter to see further back" in operator.get(address).content.decode()


def test_finding_a_block_by_its_id_uses_the_index_by_id(db: None) -> None:
    hour_ms = rows.HOUR_MS
    base_ms = rows.now_ms() - 2000 * hour_ms
    blocks = [
        Block(
            ulid=ulids.make(base_ms + number * hour_ms, number.to_bytes(10, "big")),
            shard=number % 16,
            level=0,
            partition_start_ms=(base_ms + number * hour_ms) // (6 * hour_ms) * 6 * hour_ms,
            created_at_ms=base_ms,
            min_time_ms=base_ms,
            max_time_ms=base_ms,
            size_bytes=1,
            object_key="k",
            metadata=b"",
            dataset_count=0,
            state="parked",
            parked_reason="r",
            added_command_index=1,
            arrived_at_ms=base_ms,
        )
        for number in range(2000)
    ]
    Block.objects.bulk_create(blocks)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    found = find_blocks(Block.objects.order_by("-id"), blocks[1234].ulid)
    assert [block.ulid for block in found] == [blocks[1234].ulid]
    plan = blocks_between(blocks[1234].ulid, blocks[1234].ulid).explain()
    assert "block_unique_in_shard" in plan or "(ulid>? AND ulid<?)" in plan  # SQLite gives it a name of its own


def test_a_job_in_a_list_is_read_without_its_documents(db: None) -> None:
    rows.make_job("j")
    job = jobs_for_list(rows.now_ms()).get()
    assert {"spec", "result"} <= job.get_deferred_fields()
    assert Job.objects.get().spec
