"""Questions to the index: what is found, what is left out, in which order, and who may ask over HTTP."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.formats.profile_block.model import DATASET_INDEX
from engine.formats.profile_block.selectors import parse_selector
from tests.block_factory import block_meta, segment_ids, ulid
from tests.webadmin.service import Service, rolled_back
from webadmin.base.access.services import issue_worker_credential
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles import queries
from webadmin.lanes.profiles.api import query_messages
from webadmin.lanes.profiles.errors import InvalidIndexQuery
from webadmin.lanes.profiles.models import TenantService
from webadmin.lanes.profiles.queries import (
    BlockFound,
    IndexQuery,
    TenantStatistics,
    find_blocks,
    find_labels,
    tenant_services,
    tenant_statistics,
)
from webadmin.lanes.profiles.services.delete_requests import DeletionTarget, request_deletion

FAR_MS = 1 << 45
ADDRESS = "/api/v1/blocks/query"


def query(*tenants: str, selector: str = "", start: int = 0, end: int = FAR_MS, labels: tuple = ()) -> IndexQuery:
    return IndexQuery(
        tenants=tenants, start_ms=start, end_ms=end, matchers=parse_selector(selector), labels=tuple(labels)
    )


def shape(blocks: list[BlockFound]) -> list[tuple[str, str, list[tuple[str, str]]]]:
    return [(block.id, block.tenant, [(d.tenant, d.name) for d in block.datasets]) for block in blocks]


@pytest.fixture
def three(service: Service) -> tuple[str, str, str]:
    """I10: a segment of two tenants and two blocks of tenant-a, all in shard 1."""
    now = service.clock.now_ms
    one, two, three = ulid(now, 1), ulid(now, 2), ulid(now, 3)
    service.add(
        block_meta(three, level=1, tenant="tenant-a", datasets=[("tenant-a", "dataset-a"), ("tenant-a", "x")]),
        block_meta(two, level=1, tenant="tenant-a", datasets=[("tenant-a", "dataset-a")]),
        block_meta(one, datasets=[("tenant-a", "dataset-a"), ("tenant-b", "dataset-a"), ("tenant-b", "y")]),
    )
    return one, two, three


@pytest.mark.row("I10")
def test_nothing_is_found_for_another_tenant(three: tuple[str, str, str]) -> None:
    assert find_blocks(query("tenant-c")) == []
    assert shape(find_blocks(query("tenant-b", selector='{service_name="x"}'))) == []


@pytest.mark.row("I11")
def test_only_matching_datasets_in_the_order_of_tenant_shard_id(three: tuple[str, str, str]) -> None:
    one, two, last = three
    found = find_blocks(query("tenant-a", "tenant-b", selector='{service_name=~"dataset-a"}'))
    assert shape(found) == [
        (one, "", [("tenant-a", "dataset-a"), ("tenant-b", "dataset-a")]),
        (two, "tenant-a", [("tenant-a", "dataset-a")]),
        (last, "tenant-a", [("tenant-a", "dataset-a")]),
    ]


@pytest.mark.row("I12")
def test_only_the_datasets_of_the_tenant(three: tuple[str, str, str]) -> None:
    assert shape(find_blocks(query("tenant-b"))) == [(three[0], "", [("tenant-b", "dataset-a"), ("tenant-b", "y")])]


@pytest.mark.row("I13")
def test_nothing_before_the_data_starts(service: Service, three: tuple[str, str, str]) -> None:
    now = service.clock.now_ms
    assert find_blocks(query("tenant-a", end=now - 1)) == []
    assert find_blocks(query("tenant-a", start=now + 501)) == []


@pytest.mark.row("I14")
def test_only_the_requested_labels_are_returned(three: tuple[str, str, str]) -> None:
    asked = query("tenant-a", selector='{service_name="x"}', labels=("service_name",))
    [block] = find_blocks(asked)
    assert block.datasets[0].labels == ((("service_name", "x"),),)
    assert find_blocks(replace(asked, labels=()))[0].datasets[0].labels == ()
    assert find_labels(replace(asked, matchers=())) == [(("service_name", "dataset-a"),), (("service_name", "x"),)]
    assert find_labels(replace(asked, labels=())) == []


@pytest.mark.row("I15")
@pytest.mark.parametrize(
    ("start", "end", "is_found"),
    [(-100, -1, False), (-100, 0, True), (500, 900, True), (501, 900, False), (3, 3, True)],
)
def test_ranges_are_closed_at_both_ends(service: Service, start: int, end: int, is_found: bool) -> None:
    now = service.clock.now_ms
    service.add(block_meta(ulid(now)))
    assert bool(find_blocks(query("acme", start=now + start, end=now + end))) is is_found


@pytest.mark.row("I16")
@pytest.mark.parametrize(
    "bad", [query(), query(""), query("a", start=5, end=4), query("a", start=-1), query(*(str(n) for n in range(1001)))]
)
def test_an_invalid_query_is_refused(db: None, bad: IndexQuery) -> None:
    with pytest.raises(InvalidIndexQuery):
        find_blocks(bad)


@pytest.mark.row("I9")
def test_statistics_are_bounds_or_zeros(service: Service) -> None:
    now = service.clock.now_ms
    assert tenant_statistics("acme") == TenantStatistics(has_data=False, oldest_ms=0, newest_ms=0)
    service.add(block_meta(ulid(now, 1)), block_meta(ulid(now - 9000, 2), datasets=[("acme", "api")]))
    assert tenant_statistics("acme") == TenantStatistics(has_data=True, oldest_ms=now - 9000, newest_ms=now + 500)
    assert not tenant_statistics("beta").has_data


def test_services_of_a_tenant_with_live_data_and_their_times(service: Service) -> None:
    now = service.clock.now_ms
    assert list(tenant_services("acme")) == []
    service.add(
        block_meta(ulid(now, 1), datasets=[("acme", "api"), ("beta", "db")]),
        block_meta(ulid(now - 9000, 2), datasets=[("acme", "web"), ("acme", "api")]),
        block_meta(ulid(now - 500, 3), level=1, tenant="acme", datasets=[("acme", "web")]),
    )
    assert [(found.name, found.oldest_ms, found.newest_ms) for found in tenant_services("acme")] == [
        ("api", now - 9000, now + 500),
        ("web", now - 9000, now),
    ]
    [own] = tenant_services("beta")
    assert (own.name, own.label_sets) == ("db", ((("service_name", "db"), ("__profile_type__", "cpu")),))
    assert list(tenant_services("nobody")) == []


def test_a_service_that_a_delete_request_hides_whole_is_not_named(service: Service) -> None:
    now = service.clock.now_ms
    service.add(block_meta(ulid(now, 1), datasets=[("acme", "api"), ("acme", "web")]))
    request_deletion(DeletionTarget(tenant="acme", service="api"), context=ActionContext(actor="test", why="gone"))
    assert [found.name for found in tenant_services("acme")] == ["web"]


@pytest.mark.row("invariant-5")
def test_the_results_are_found_instead_of_the_sources(service: Service) -> None:
    ids = service.add_segments(20)
    assert [block.id for block in find_blocks(query("acme"))] == ids
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=0)
    [block] = find_blocks(query("acme", selector='{service_name="web"}'))
    assert (block.level, block.tenant, [d.name for d in block.datasets]) == (1, "acme", ["web"])


def test_the_sections_of_a_found_dataset_are_returned(service: Service) -> None:
    meta = block_meta(ulid(service.clock.now_ms), datasets=[("acme", "api"), ("acme", "web")])
    service.add(meta)
    [block] = find_blocks(query("acme", selector='{service_name="web"}'))
    [dataset] = block.datasets
    assert (dataset.position, dataset.table_of_contents) == (1, meta.datasets[1].table_of_contents)
    assert (dataset.size, block.size, block.object_key) == (100, meta.size, f"segments/1/anonymous/{meta.id}/block.bin")


def test_a_dataset_far_longer_than_the_first_of_its_service_is_still_found(service: Service) -> None:
    now = service.clock.now_ms
    short, long = block_meta(ulid(now - 1, 1)), block_meta(ulid(now - 1, 2))
    begin = now - 50_000_000
    long = replace(long, min_time_ms=begin, datasets=(replace(long.datasets[0], min_time_ms=begin),))
    service.add(short)
    service.add(long)
    assert [block.id for block in find_blocks(query("acme", start=begin, end=begin + 1))] == [long.id]
    assert TenantService.objects.get().span_max_ms >= 50_000_000


SPANS = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000), st.sampled_from("xyz")), max_size=12)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(spans=SPANS, start=st.integers(0, 5000), length=st.integers(0, 5000), services=st.sets(st.sampled_from("xyz")))
def test_pruning_never_loses_nor_invents_a_dataset(service: Service, spans, start, length, services) -> None:
    now = service.clock.now_ms - 20_000
    with rolled_back():
        expected = set()
        for number, (first, span, name) in enumerate(spans):
            meta = block_meta(ulid(now, number), datasets=[("acme", name)])
            bounds = {"min_time_ms": now + first, "max_time_ms": now + first + span}
            service.add(replace(meta, **bounds, datasets=(replace(meta.datasets[0], **bounds),)))
            if name in services and first <= start + length and first + span >= start:
                expected.add(meta.id)
        selector = f'{{service_name=~"{"|".join(sorted(services))}"}}'
        found = find_blocks(query("acme", selector=selector, start=now + start, end=now + start + length))
        assert {block.id for block in found} == expected


def test_a_service_by_equality_reads_no_other_services(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(services: list[tuple], asked: IndexQuery) -> dict[tuple[int, int, int], int]:
        read.extend(name for *_, name in services)
        return matching(services, asked)

    matching = queries._matching_services
    monkeypatch.setattr(queries, "_matching_services", counted)
    service.add(block_meta(ulid(service.clock.now_ms), datasets=[("acme", f"svc-{n}") for n in range(100)]))
    for selector in ('{service_name="svc-7"}', '{__profile_type__="cpu", service_name="svc-7"}'):
        read.clear()
        [block] = find_blocks(query("acme", selector=selector))
        assert [dataset.name for dataset in block.datasets] == read == ["svc-7"]
    for selector in ('{service_name=""}', '{service_name="svc\x00"}', '{service_name="none"}'):
        assert find_blocks(query("acme", selector=selector)) == []
    assert len(find_blocks(query("acme", selector='{service_name!="svc-7"}'))[0].datasets) == 99


def test_a_dataset_index_is_found_by_the_services_in_it(service: Service) -> None:
    """It has no name; what its label sets name decides."""
    meta = block_meta(ulid(service.clock.now_ms), level=1, tenant="acme")
    index = replace(meta.datasets[0], name="", format=DATASET_INDEX, table_of_contents=(0,))
    service.add(replace(meta, datasets=(index, *meta.datasets)))
    [block] = find_blocks(query("acme", selector='{service_name="web"}'))
    assert [dataset.name for dataset in block.datasets] == ["", "web"]


def test_services_are_read_one_after_the_other(service: Service) -> None:
    service.add(block_meta(ulid(service.clock.now_ms), datasets=[("acme", name) for name in "abc"]))
    found = tenant_services("acme")
    assert next(found).name == "a"
    assert [one.name for one in found] == ["b", "c"]


def test_a_query_costs_a_fixed_number_of_statements(service: Service, django_assert_max_num_queries) -> None:
    service.add(*(block_meta(block_id) for block_id in segment_ids(service.clock.now_ms, 50)))
    with django_assert_max_num_queries(5):  # one of them may ask whether the connection still lives
        assert len(find_blocks(query("acme", selector='{service_name="web"}'))) == 50


def post(bearer: str | None, body: Any) -> Any:
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    return Client().post(ADDRESS, data=json.dumps(body), content_type="application/json", headers=headers)


def reader(*tenants: str) -> str:
    scopes = ["blocks:query", *(f"tenant:{tenant}" for tenant in tenants)]
    return issue_worker_credential(name="reader", scopes=scopes, actor="test").wire_form


def test_a_reader_queries_over_http(three: tuple[str, str, str]) -> None:
    body = {"start_ms": 0, "end_ms": FAR_MS, "selector": '{service_name="y"}', "labels": ["service_name"]}
    answer = post(reader("tenant-b"), body)
    assert answer.status_code == 200
    [block] = answer.json()["blocks"]
    assert (block["id"], [d["labels"] for d in block["datasets"]]) == (three[0], [[{"service_name": "y"}]])


def test_a_reader_sees_only_its_tenants(three: tuple[str, str, str]) -> None:
    bearer = reader("tenant-b")
    whole = {"start_ms": 0, "end_ms": FAR_MS}
    assert {d["tenant"] for b in post(bearer, whole).json()["blocks"] for d in b["datasets"]} == {"tenant-b"}
    answer = post(bearer, whole | {"tenants": ["tenant-b", "tenant-a"]})
    assert (answer.status_code, answer.json()["code"]) == (403, "tenant_not_allowed")


def test_a_reader_of_all_tenants_names_them(three: tuple[str, str, str]) -> None:
    bearer = reader("*")
    assert post(bearer, {"start_ms": 0, "end_ms": FAR_MS}).json()["code"] == "invalid_query"
    assert len(post(bearer, {"start_ms": 0, "end_ms": FAR_MS, "tenants": ["tenant-a"]}).json()["blocks"]) == 3


def test_unknown_tenants_are_listed_and_those_without_current_data_are_not(three: tuple[str, str, str]) -> None:
    body = {"start_ms": 0, "end_ms": 1, "tenants": ["tenant-x", "tenant-a"]}
    assert post(reader("*"), body).json() == {"blocks": [], "unknown_tenants": ["tenant-x"]}


def test_a_dataset_without_label_sets_is_found_with_the_option_by_name(service: Service) -> None:
    meta = block_meta(ulid(service.clock.now_ms))
    service.add(replace(meta, datasets=tuple(replace(each, labels=()) for each in meta.datasets)))
    body = {"start_ms": 0, "end_ms": FAR_MS, "selector": '{service_name="web"}'}
    bearer = reader("acme")
    assert post(bearer, body).json()["blocks"] == []
    assert [block["id"] for block in post(bearer, body | {"by_name": True}).json()["blocks"]] == [meta.id]


@pytest.mark.row("I16")
@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"start_ms": "0", "end_ms": 1},
        {"start_ms": True, "end_ms": 1},
        {"start_ms": 2, "end_ms": 1},
        {"start_ms": 0, "end_ms": 1 << 64},
        {"start_ms": 0, "end_ms": 1, "selector": "{"},
        {"start_ms": 0, "end_ms": 1, "selector": '{a=~"("}'},
        {"start_ms": 0, "end_ms": 1, "tenants": "acme"},
        {"start_ms": 0, "end_ms": 1, "labels": [7]},
        {"start_ms": 0, "end_ms": 1, "more": 7},
        {"start_ms": 0, "end_ms": 1, "labels": ["a\0b"]},
        {"start_ms": 0, "end_ms": 1, "by_name": "yes"},
    ],
)
def test_an_invalid_query_over_http_has_a_stable_code(db: None, body: Any) -> None:
    answer = post(reader("acme"), body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_query")


def test_a_reader_needs_the_scope(db: None) -> None:
    bearer = issue_worker_credential(name="node", scopes=["jobs:poll", "tenant:acme"], actor="test").wire_form
    answer = post(bearer, {"start_ms": 0, "end_ms": 1})
    assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")


def test_a_query_above_its_maximum_of_datasets_is_rejected(three: tuple[str, str, str]) -> None:
    bearer = reader("tenant-a")
    body = {"tenants": ["tenant-a"], "start_ms": 0, "end_ms": FAR_MS}
    fits = post(bearer, body | {"datasets_max": 4})
    assert fits.status_code == 200
    assert sum(len(block["datasets"]) for block in fits.json()["blocks"]) == 4
    refused = post(bearer, body | {"datasets_max": 3})
    assert (refused.status_code, refused.json()["code"]) == (413, "query_too_large")
    for wrong in (0, -1, 200_001, True, "4", None):
        assert post(bearer, body | {"datasets_max": wrong}).json()["code"] == "invalid_query"


def test_a_request_that_names_no_bound_has_one(three: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_messages, "DATASETS_MAX", 3)
    answer = post(reader("tenant-a"), {"start_ms": 0, "end_ms": FAR_MS})
    assert (answer.status_code, answer.json()["code"]) == (413, "query_too_large")
