"""The timeline's page: who may see it, what its answers hold, and that they are bounded for any length of timeline."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.webadmin.admin.test_front_page import words
from tests.webadmin.admin.timeline_rows import (
    DAY_MS,
    DAYS,
    MB,
    fill_timeline,
    make_chunk,
    make_chunks,
    make_table,
    make_task,
)
from webadmin.base.database import dialect
from webadmin.lanes.tables.budget import read_budget
from webadmin.lanes.tables.churn import read_churn
from webadmin.lanes.tables.models import Chunk, DataSource, Policy
from webadmin.lanes.tables.status import statuses
from webadmin.lanes.tables.timeline_page.columns import COLUMNS_MAX, COUNTED, WIDTHS_MS

LONG = 10_000
QUERIES_MAX = 12
"""Session, user, the table, its ends, the columns, tasks, overrides: the same for any number of chunks."""
BYTES_MAX = 100_000
LISTS = ("datasource", "chunk", "task", "segment", "badfile", "chunkoverride")


def data(client: Client, source: DataSource, **query: object) -> dict[str, Any]:
    answer = client.get(reverse("timeline-data", args=[source.id]), query)
    assert answer.status_code == 200, answer.content
    return answer.json()


def somebody(name: str, *, permissions: tuple[str, ...] = (), tenants: tuple[str, ...] = ()) -> Client:
    """The browser of somebody who was given only this."""
    user = User.objects.create(username=name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions, content_type__app_label="tables"))
    user.groups.set([Group.objects.create(name=f"tenant:{tenant}") for tenant in tenants])
    client = Client()
    client.force_login(user)
    return client


def addresses(source: DataSource, chunk: Chunk) -> list[str]:
    return [
        reverse("timeline-page", args=[source.id]),
        reverse("timeline-data", args=[source.id]),
        reverse("timeline-chunk", args=[source.id, chunk.start_ms]),
    ]


def test_a_timeline_needs_the_view_permission_or_its_tenant(db: None) -> None:
    own, other = make_table("orders", "acme"), make_table("orders", "zeta")
    places = [(source, addresses(source, make_chunk(source, 0))) for source in (own, other)]
    viewer = somebody("viewer", permissions=("view_datasource",))
    renter = somebody("renter", tenants=("acme",))
    clerk = somebody("clerk")

    def statuses(client: Client) -> list[list[int]]:
        return [[client.get(place).status_code for place in found] for _, found in places]

    assert statuses(viewer) == [[200, 200, 200], [200, 200, 200]]
    assert statuses(renter) == [[200, 200, 200], [404, 404, 404]]
    assert statuses(clerk) == [[404, 404, 404], [404, 404, 404]]
    assert statuses(Client()) == [[302, 401, 401], [302, 401, 401]]


def test_an_answer_has_every_chunk_with_its_state_its_tasks_and_orders(operator: Client) -> None:
    source = fill_timeline()
    told = data(operator, source)
    columns = told["columns"]
    assert set(columns) == {"width_ms", "start_ms", "end_ms", "chunks", *COUNTED, "segments", "bytes", "largest"}
    assert columns["width_ms"] == 0
    assert {len(values) for name, values in columns.items() if name != "width_ms"} == {DAYS}
    assert {name: sum(columns[name]) for name in COUNTED} == {
        "empty": 1,
        "stable": 27,
        "unstable": 18,
        "deferred": 7,
        "skipped": 6,
        "quarantined": 1,
        "misaligned": 4,
        "changed": 1,
    }
    assert told["stretch"] == told["whole"] == [columns["start_ms"][0], columns["end_ms"][-1]]
    assert [task["state"] for task in told["tasks"]["shown"]] == ["running", "parked", "blocked", "waiting", "blocked"]
    by_id = {task["id"]: task for task in told["tasks"]["shown"]}
    blocked = [task for task in by_id.values() if task["state"] == "blocked"]
    assert [sorted(by_id[needed]["state"] for needed in task["needs"]) for task in blocked] == [
        ["running", "waiting"],
        ["waiting"],
    ]
    assert {task["colour"] for task in blocked} == {"black"}
    assert [override["kind"] for override in told["overrides"]] == ["never", "now"]


def test_a_long_timeline_is_answered_in_as_many_columns_and_queries_as_a_short_one(operator: Client) -> None:
    short, long = make_table("short"), make_table("long")
    make_chunks(short, 0, 500)
    make_chunks(long, -LONG // 2 * DAY_MS, LONG)
    queries = []
    for source in (short, long):
        with CaptureQueriesContext(connection) as caught:
            answer = operator.get(
                reverse("timeline-data", args=[source.id]), {"from": -LONG * DAY_MS, "until": LONG * DAY_MS}
            )
        told = answer.json()["columns"]
        queries.append(len(caught))
        assert len(answer.content) < BYTES_MAX
        assert told["width_ms"] in WIDTHS_MS
        assert 100 < len(told["start_ms"]) <= COLUMNS_MAX
        assert sum(told["chunks"]) == Chunk.objects.filter(source=source).count()
        assert sum(told["bytes"]) == sum(place % 30 * MB for place in range(sum(told["chunks"])))
        assert sum(sum(told[name]) for name in COUNTED[:6]) == sum(told["chunks"])
        assert max(told["largest"]) >= 499 * MB
        starts = Chunk.objects.filter(source=source).order_by("start_ms").values_list("start_ms", flat=True)
        assert told["start_ms"][0] <= starts[0] < told["end_ms"][0]
    assert queries[0] == queries[1] <= QUERIES_MAX


def test_columns_keep_their_borders_when_the_view_moves(operator: Client) -> None:
    source = make_table()
    make_chunks(source, 0, 3_000)
    found = [
        data(operator, source, **{"from": place * DAY_MS, "until": (place + 2_000) * DAY_MS})["columns"]
        for place in (0, 37, 501)
    ]
    assert len({columns["width_ms"] for columns in found}) == 1
    width_ms = found[0]["width_ms"]
    assert {start % width_ms for columns in found for start in columns["start_ms"]} == {0}


def test_a_stretch_shows_the_chunks_that_it_touches_and_no_other(operator: Client) -> None:
    source = make_table()
    make_chunks(source, 0, 10)
    Chunk.objects.filter(source=source, start_ms=4 * DAY_MS).delete()
    inside = data(operator, source, **{"from": 2 * DAY_MS + 5, "until": 6 * DAY_MS})["columns"]["start_ms"]
    assert inside == [2 * DAY_MS, 3 * DAY_MS, 5 * DAY_MS]
    gap = data(operator, source, **{"from": 4 * DAY_MS, "until": 5 * DAY_MS})["columns"]["start_ms"]
    assert gap == []
    outside = data(operator, source, **{"from": 50 * DAY_MS, "until": 60 * DAY_MS})
    assert (outside["columns"]["start_ms"], outside["whole"]) == ([], [0, 10 * DAY_MS])
    assert data(operator, make_table("empty"))["whole"] is None


@pytest.mark.parametrize(
    "query",
    [
        {"from": "x", "until": "5"},
        {"from": "5"},
        {"from": "5", "until": "5"},
        {"from": "9", "until": "5"},
        {"from": "1", "until": str(10**17)},
        {"from": "--1", "until": "5"},
        {"from": "\N{SUPERSCRIPT TWO}", "until": "5"},
    ],
)
def test_invalid_queries_are_rejected_with_code_message_and_next(operator: Client, query: dict[str, str]) -> None:
    answer = operator.get(reverse("timeline-data", args=[make_table().id]), query)
    assert answer.status_code == 400
    assert set(answer.json()) == {"code", "message", "next"}


@pytest.mark.parametrize("start", ["7", "x", "-", "9" * 30, "1.5"])
def test_a_chunk_that_is_not_there_is_no_error_of_the_server(operator: Client, start: str) -> None:
    source = make_table()
    assert operator.get(reverse("timeline-chunk", args=[source.id, start])).status_code == 404
    assert operator.post(reverse("timeline-data", args=[source.id])).status_code == 405


def test_text_from_files_and_users_is_escaped(operator: Client) -> None:
    source = make_table()
    chunk = make_chunk(source, 0, "stable", reason="<script>alert(1)</script>", note="<b>misaligned</b>")
    panel = operator.get(reverse("timeline-chunk", args=[source.id, chunk.start_ms])).content.decode()
    assert "&lt;script&gt;alert(1)" in panel
    assert "<script>" not in panel
    assert "&lt;b&gt;misaligned" in panel


def test_actions_are_offered_only_with_the_permission_to_change_chunks(operator: Client) -> None:
    source = make_table()
    place = addresses(source, make_chunk(source, 0))[2]
    offers = 'aria-label="Actions"'
    assert offers not in somebody("viewer", permissions=("view_datasource",)).get(place).content.decode()
    assert offers in somebody("boss", permissions=("view_datasource", "change_chunk")).get(place).content.decode()
    assert offers in operator.get(place).content.decode()


def test_lists_and_the_front_page_cost_the_same_for_many_tables(operator: Client) -> None:
    addresses = ["/admin/", *(reverse(f"admin:tables_{name}_changelist") for name in LISTS)]

    def queries() -> list[int]:
        cache.clear()
        found = []
        for address in addresses:
            with CaptureQueriesContext(connection) as caught:
                assert operator.get(address).status_code == 200
            found.append(len(caught))
        return found

    fill_timeline()
    few = queries()
    for number in range(12):
        source = make_table(f"table-{number}")
        make_chunks(source, 0, 20)
        make_task(source, 0, 3)
    assert queries() == few


def test_numbers_of_a_table_are_those_of_its_rows(operator: Client) -> None:
    source = fill_timeline()
    [now] = statuses([source]).values()
    assert (now.running, now.waiting, now.blocked, now.parked) == (1, 1, 2, 1)
    assert (now.chunks, now.unstable, now.deferred, now.quarantined, now.bad_files) == (DAYS, 18, 7, 1, 1)
    assert now.to_rewrite == (17 + 7) * 120 * MB + 1_300 * MB
    assert (now.arrived, now.drained, now.unpublished) == (1_200 * MB, 2 * 120 * MB + 121 * MB, 2)
    assert now.clears_in_ms is None
    churn = read_churn(source)
    assert [(end - start, count) for start, end, count in churn.again] == [(DAY_MS, 4)]
    assert churn.read_again == 3 * 121 * MB
    assert (churn.days[0].arrived_bytes, churn.days[0].read) == (1_200 * MB, now.drained)
    page = words(operator.get(reverse("admin:tables_datasource_change", args=[source.id])).content.decode())
    assert "Churn: 1 chunk rewritten 4 times or more within 7 days." in page
    assert "Clear never at this rate" in page
    assert "Hot window: 0 \N{RIGHTWARDS ARROW} 1 h late files come for an hour" in page
    assert "Quarantined files dt=2026" not in page
    assert "FooterLies" in page


def test_a_budget_of_a_day_counts_admitted_bytes_and_shows_when_it_is_free_again(operator: Client) -> None:
    source = make_table()
    Policy.objects.filter(source=source).update(bytes_per_day=300 * MB)
    now_ms = dialect.clock_ms()
    make_task(source, 0, 1, "leased", admitted_at_ms=now_ms - DAY_MS // 2)
    make_task(source, 5 * DAY_MS, 2, "leased", admitted_at_ms=now_ms - 60_000)
    make_task(source, 9 * DAY_MS, 2, "done", admitted_at_ms=now_ms - DAY_MS - 1)
    make_task(source, 15 * DAY_MS, 1, "blocked")
    source.refresh_from_db()
    budget = read_budget(source)
    assert (budget.used, budget.left, budget.is_spent) == (360 * MB, 0, True)
    assert (budget.waiting_tasks, budget.waiting_bytes) == (1, 120 * MB)
    assert 0 < budget.refills_in_ms <= DAY_MS // 2
    page = words(operator.get(reverse("admin:tables_datasource_change", args=[source.id])).content.decode())
    assert "The daily budget is used up; some is available again in" in page
    assert "Waiting for budget 1 task of 114 MiB" in page
