"""Pages of an answer about blocks: together they are the answer of the first one's moment, and each is bounded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.query import block_query
from engine.query.block_query import IndexSnapshot
from engine.query.model import Question
from spark.errors import IndexQueryFailed
from spark.index_client import STARTS_MAX, query_index
from tests.block_factory import block_meta, ulid
from tests.webadmin.lanes.profiles.test_queries import FAR_MS, post, query, reader
from tests.webadmin.lanes.profiles.test_retention import CONTEXT, keep, old_block
from tests.webadmin.service import Service, rolled_back
from webadmin.base.access.services import issue_worker_credential
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles import queries
from webadmin.lanes.profiles.errors import IndexMoved, InvalidIndexQuery
from webadmin.lanes.profiles.models import Block, LabelSets, Tombstone
from webadmin.lanes.profiles.queries import BlockFound, BlockPage, DatasetFound, IndexQuery, find_blocks, find_page
from webadmin.lanes.profiles.services.delete_objects import confirm_deleted
from webadmin.lanes.profiles.services.delete_requests import DeletionTarget, request_deletion
from webadmin.lanes.profiles.services.retain import apply_retention
from webadmin.schedule.models import Command, PositionMark

Found = dict[tuple[str, int], DatasetFound]


def datasets(*blocks: BlockFound) -> Found:
    """Return the datasets by block and position; each must come once."""
    rows = [((block.id, dataset.position), dataset) for block in blocks for dataset in block.datasets]
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def pages(asked: IndexQuery, size: int, cursor: str = "") -> Iterator[BlockPage]:
    while True:
        page = find_page(replace(asked, datasets_max=size), cursor)
        assert sum(len(block.datasets) for block in page.blocks) == size or not page.cursor
        yield page
        if not page.cursor:
            return
        cursor = page.cursor


def joined(found: Iterator[BlockPage]) -> Found:
    return datasets(*(block for page in found for block in page.blocks))


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "SERVICES_PER_QUERY", 2)
    monkeypatch.setattr(queries, "ROWS_PER_QUERY_MIN", 1)


BLOCKS = st.lists(
    st.tuples(
        st.integers(0, 3),  # when it ends
        st.sets(st.tuples(st.sampled_from(["acme", "beta", "other"]), st.sampled_from("vwxyz")), min_size=1),
    ),
    max_size=8,
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(blocks=BLOCKS, size=st.integers(1, 7), services=st.sets(st.sampled_from("vwxyz")), hidden=st.booleans())
def test_pages_together_are_the_answer(
    service: Service, small_batches: None, blocks: list, size: int, services: set[str], hidden: bool
) -> None:
    now = service.clock.now_ms - 5_000
    with rolled_back():
        for number, (end, rows) in enumerate(blocks):
            service.add(block_meta(ulid(now + end, number), datasets=rows))
        if hidden and any(tenant == "acme" for _, rows in blocks for tenant, _ in rows):
            request_deletion(
                DeletionTarget(tenant="acme", service="w"), context=ActionContext(actor="test", why="gone")
            )
        selector = f'{{service_name=~"{"|".join(sorted(services))}"}}' if services else ""
        asked = query("acme", "beta", selector=selector, labels=("service_name",))
        assert joined(pages(asked, size)) == datasets(*find_blocks(asked))


def test_what_is_merged_or_added_between_pages_does_not_change_the_answer(
    service: Service, small_batches: None
) -> None:
    service.add_segments(20, datasets=[("acme", "api"), ("acme", "web")])
    asked = query("acme")
    before = datasets(*find_blocks(asked))
    first, *_ = pages(asked, 7)
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=0)
    service.add_segments(1, datasets=[("acme", "api"), ("acme", "cron"), ("acme", "web")])
    assert datasets(*find_blocks(asked)) != before
    assert datasets(*first.blocks) | joined(pages(asked, 7, first.cursor)) == before
    assert joined(pages(asked, 7)) == datasets(*find_blocks(asked))


def test_a_command_that_commits_after_later_ones_is_left_out_like_those(service: Service, small_batches: None) -> None:
    """Additions take their index without holding the head of the log: a lower one may commit later."""
    service.add_segments(1, datasets=[("other", "web")])
    service.add_segments(3, datasets=[("acme", "api"), ("acme", "web")])
    now = service.clock.now_ms
    index = Command.objects.latest("index").index
    Command.objects.filter(index=index).update(index=index + 100)
    Block.objects.filter(added_command_index=index).update(added_command_index=index + 100)
    asked = query("acme")
    before = datasets(*find_blocks(asked))
    first, *_ = pages(asked, 2)
    service.add(block_meta(ulid(now + 2_000, 7), datasets=[("acme", "api"), ("acme", "web")]))
    added = Command.objects.exclude(index=index + 100).latest("index").index  # by database before or after that one
    Command.objects.filter(index=added).update(index=index + 50)
    Block.objects.filter(added_command_index=added).update(added_command_index=index + 50)
    assert len(find_blocks(asked)) == 4
    assert datasets(*first.blocks) | joined(pages(asked, 2, first.cursor)) == before


def first_page(service: Service) -> tuple[IndexQuery, str]:
    service.add_segments(20, datasets=[("acme", "web"), ("beta", "web")])
    asked = query("acme")
    return asked, next(pages(asked, 5)).cursor


def test_a_deleted_object_moves_the_index(service: Service) -> None:
    asked, cursor = first_page(service)
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=0)
    assert list(pages(asked, 5, cursor))
    confirm_deleted(list(Tombstone.objects.values_list("id", flat=True)[:1]), at_ms=service.clock.now_ms)
    with pytest.raises(IndexMoved, match="begin again"):
        list(pages(asked, 5, cursor))


def test_a_delete_request_moves_the_index_of_its_tenant(service: Service) -> None:
    asked, cursor = first_page(service)
    request_deletion(DeletionTarget(tenant="beta"), context=ActionContext(actor="test", why="gone"))
    assert list(pages(asked, 5, cursor))
    request_deletion(DeletionTarget(tenant="acme", service="web"), context=ActionContext(actor="test", why="gone"))
    with pytest.raises(IndexMoved):
        list(pages(asked, 5, cursor))


@pytest.mark.parametrize("kept", ["", "beta"])
def test_retention_moves_the_index_whether_it_drops_blocks_or_trims_segments(service: Service, kept: str) -> None:
    """A segment that other tenants have data in stays, without the datasets of this one."""
    keep(1, "acme")
    now = service.clock.now_ms
    for number in range(3):
        rows = [("acme", "web"), *([(kept, "web")] if kept else [])]
        meta = block_meta(ulid(now - 48 * 3_600_000, number), datasets=rows)
        service.add(meta, any_age=True)
    asked = query("acme")
    cursor = next(pages(asked, 1)).cursor
    assert cursor
    report = apply_retention(context=CONTEXT)
    assert (report.trimmed_segments, report.dropped_blocks) == ((3, 0) if kept else (0, 3))
    with pytest.raises(IndexMoved):
        list(pages(asked, 1, cursor))


def test_retention_of_others_does_not_move_it(service: Service) -> None:
    keep(1, "beta")
    old_block(service, 48, 1, tenant="beta")
    asked, cursor = first_page(service)
    assert apply_retention(context=CONTEXT).dropped_blocks == 1
    assert list(pages(asked, 5, cursor))


def test_another_history_of_the_log_moves_it(service: Service) -> None:
    asked, cursor = first_page(service)
    PositionMark.objects.update_or_create(id=1, defaults={"epoch": "other"})
    with pytest.raises(IndexMoved):
        list(pages(asked, 5, cursor))


@pytest.mark.parametrize("cursor", ["x", "é", "W1tb" * 2_000, "W10=", "WzEsMiwzLDQsNSw2LDcsOCw5XQ==", "A" * 10_001])
def test_what_is_no_cursor_is_refused(service: Service, cursor: str) -> None:
    with pytest.raises(InvalidIndexQuery, match="cursor"):
        find_page(replace(query("acme"), datasets_max=5), cursor)


def test_a_cursor_belongs_to_its_query(service: Service) -> None:
    asked, cursor = first_page(service)
    with pytest.raises(InvalidIndexQuery, match="another query"):
        find_page(replace(asked, tenants=("beta",), datasets_max=5), cursor)
    with pytest.raises(InvalidIndexQuery, match="datasets_max"):
        find_page(asked)


def statements_of_first_page(selector: str) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        page = find_page(replace(query("acme", selector=selector, labels=("service_name",)), datasets_max=3))
    assert page.cursor
    return [each["sql"] for each in captured.captured_queries]


@pytest.mark.parametrize("selector", ["", '{service_name=~"s.*"}'])
def test_a_page_reads_as_many_services_as_it_needs(service: Service, small_batches: None, selector: str) -> None:
    """With eight times the services, the first page sends as many statements, and reads as few label sets."""
    now = service.clock.now_ms
    service.add(block_meta(ulid(now, 1), datasets=[("acme", f"s{number}") for number in range(5)]))
    few = statements_of_first_page(selector)
    service.add(block_meta(ulid(now, 2), datasets=[("acme", f"s{number}") for number in range(5, 40)]))
    assert LabelSets.objects.count() == 40
    many = statements_of_first_page(selector)
    assert len(many) == len(few)
    assert [sql for sql in many if "profiles_tenantservice" in sql and "LIMIT 2" not in sql] == []
    [labels] = [sql for sql in many if 'FROM "profiles_labelsets"' in sql]
    assert labels.count(",") <= 1 + 2  # two columns, three row ids


def test_pages_over_http(service: Service) -> None:
    service.add_segments(3, datasets=[("acme", "api"), ("acme", "web")])
    bearer = reader("acme")
    body = {"start_ms": 0, "end_ms": FAR_MS}
    whole = post(bearer, body).json()
    assert whole.keys() == {"blocks", "unknown_tenants"}
    assert post(bearer, body | {"cursor": ""}).json() == whole | {"next": ""}
    first = post(bearer, body | {"cursor": "", "datasets_max": 4}).json()
    last = post(bearer, body | {"cursor": first["next"], "datasets_max": 4}).json()
    assert [sum(len(block["datasets"]) for block in page["blocks"]) for page in (first, last)] == [4, 2]
    assert last["next"] == ""
    refused = post(bearer, body | {"cursor": 7})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_query")
    assert post(reader_of_beta(), body | {"cursor": first["next"]}).json()["code"] == "invalid_query"
    request_deletion(DeletionTarget(tenant="acme", service="web"), context=ActionContext(actor="test", why="gone"))
    moved = post(bearer, body | {"cursor": first["next"], "datasets_max": 4})
    assert (moved.status_code, moved.json()["code"]) == (409, "index_moved")


def reader_of_beta() -> str:
    scopes = ["blocks:query", "tenant:beta"]
    return issue_worker_credential(name="reader-of-beta", scopes=scopes, actor="test").wire_form


class ServiceTransport(httpx.BaseTransport):
    """The service in this process; ``before`` runs before the request of this number, or before each later page."""

    def __init__(self, before: Any = None, *, at: int | None = None) -> None:
        self.cursors: list[str] = []
        self.before, self.at = before, at

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        cursor = json.loads(request.read())["cursor"]
        if self.before and (cursor != "" if self.at is None else len(self.cursors) == self.at):
            self.before()
        self.cursors.append(cursor)
        headers = {"Authorization": request.headers["Authorization"]}
        answer = Client().post(request.url.path, data=request.content, content_type="application/json", headers=headers)
        return httpx.Response(answer.status_code, content=answer.content)


def look_through(transport: ServiceTransport, bearer: str) -> IndexSnapshot:
    question = Question(start_ms=0, end_ms=FAR_MS, matchers=())
    return query_index("http://service", bearer, "acme", question, pause=lambda seconds: None, transport=transport)


def by_key(found: IndexSnapshot) -> dict[str, Any]:
    assert len({block.key for block in found.blocks}) == len(found.blocks)
    return {block.key: block for block in found.blocks}


def test_spark_reads_all_pages_and_begins_again_when_the_index_moved(
    service: Service, small_batches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.add_segments(4, datasets=[("acme", "api"), ("acme", "web"), ("beta", "web")])
    bearer = reader("acme")
    whole = look_through(ServiceTransport(), bearer)
    assert sum(len(block.datasets) for block in whole.blocks) == 8
    monkeypatch.setattr(block_query, "DATASETS_PER_PAGE", 3)
    paged = ServiceTransport()
    assert by_key(look_through(paged, bearer)) == by_key(whole)
    assert len(paged.cursors) == 3

    def hide() -> None:
        request_deletion(DeletionTarget(tenant="acme", service="api"), context=ActionContext(actor="test", why="gone"))

    moved = ServiceTransport(hide, at=1)
    found = look_through(moved, bearer)
    assert [cursor == "" for cursor in moved.cursors] == [True, False, True, False]
    monkeypatch.undo()
    assert by_key(found) == by_key(look_through(ServiceTransport(), bearer))
    assert sum(len(block.datasets) for block in found.blocks) == 4


def test_spark_gives_up_when_the_index_moves_each_time(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.add_segments(4)
    monkeypatch.setattr(block_query, "DATASETS_PER_PAGE", 3)
    epochs = iter(range(100))

    def change_history() -> None:
        PositionMark.objects.update_or_create(id=1, defaults={"epoch": f"history {next(epochs)}"})

    always = ServiceTransport(change_history)
    with pytest.raises(IndexQueryFailed, match=rf"removed while the index was read, {STARTS_MAX} times"):
        look_through(always, reader("acme"))
    assert always.cursors.count("") == STARTS_MAX
