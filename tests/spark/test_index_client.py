"""A Spark job's look at the index: what it asks, what it tries again, and what it makes of odd answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from engine.formats.profile_block.selectors import parse_selector
from engine.query.block_query import IndexSnapshot
from engine.query.model import Question
from spark.errors import IndexQueryFailed, IndexQueryRefused
from spark.index_client import ATTEMPTS_MAX, query_index

QUESTION = Question(start_ms=-5, end_ms=100, matchers=parse_selector(r'{service_name="a\"b", region=~"eu.*"}'))
DATASET: dict[str, Any] = {
    "position": 2,
    "tenant": "acme",
    "name": "api",
    "format": 0,
    "min_time_ms": 10,
    "max_time_ms": 20,
    "size": 30,
    "table_of_contents": [0, 10, 20],
    "masks_applied": 0,
    "masks": [{"index": 4, "tenant": "acme", "service": "", "selector": "", "from_ms": 15, "until_ms": None}],
    "labels": [{"__profile_type__": "cpu"}],
}
BLOCK: dict[str, Any] = {"object_key": "a/b", "size": 99, "datasets": [DATASET]}


def ask(handler: Callable[[httpx.Request], httpx.Response]) -> tuple[IndexSnapshot, list[float]]:
    pauses: list[float] = []
    transport = httpx.MockTransport(handler)
    found = query_index("http://service/", "lw_x", "acme", QUESTION, pause=pauses.append, transport=transport)
    return found, pauses


def answers(*given: Any) -> Callable[[httpx.Request], httpx.Response]:
    left = list(given)

    def handler(request: httpx.Request) -> httpx.Response:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)

    return handler


def test_only_conditions_of_the_index_are_sent_to_it() -> None:
    asked: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={"blocks": [BLOCK], "unknown_tenants": []})

    found, _ = ask(handler)
    (request,) = asked
    assert str(request.url) == "http://service/api/v1/blocks/query"
    assert request.headers["Authorization"] == "Bearer lw_x"
    body = json.loads(request.content)
    assert (body["tenants"], body["start_ms"], body["end_ms"], body["by_name"]) == (["acme"], 0, 100, True)
    assert parse_selector(body["selector"]) == QUESTION.matchers[:1]
    (block,) = found.blocks
    (dataset,) = block.datasets
    assert (block.key, block.size, dataset.position, dataset.profile_types) == ("a/b", 99, 2, frozenset(["cpu"]))
    assert (dataset.masks[0].index, dataset.masks[0].from_ms, dataset.masks[0].until_ms) == (4, 15, None)


def test_datasets_outside_the_question_are_left_out() -> None:
    late = {**BLOCK, "datasets": [{**DATASET, "min_time_ms": 101, "max_time_ms": 102}]}
    hidden = {**BLOCK, "datasets": [{**DATASET, "masks": [{"index": 1, "tenant": "acme"}]}]}
    assert ask(answers({"blocks": [late, hidden]}))[0].blocks == ()


def test_temporary_errors_are_retried_and_lasting_ones_are_raised() -> None:
    found, pauses = ask(answers(httpx.ConnectError("no"), httpx.Response(503), {"blocks": []}))
    assert found.blocks == ()
    assert len(pauses) == 2
    assert pauses == sorted(pauses)
    with pytest.raises(IndexQueryFailed, match="503 busy"):
        ask(answers(*[httpx.Response(503, text="busy")] * ATTEMPTS_MAX))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (httpx.Response(403, text="scope_missing"), "403 scope_missing"),
        (httpx.Response(400, text="invalid_query"), "invalid_query"),
        ({"blocks": [], "unknown_tenants": ["acme"]}, "no data was ever stored for tenant 'acme'"),
    ],
)
def test_a_refusal_is_not_tried_again(answer: Any, message: str) -> None:
    with pytest.raises(IndexQueryRefused, match=message):
        ask(answers(answer))


def without(field: str) -> dict[str, Any]:
    return {name: value for name, value in DATASET.items() if name != field}


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {},
        {"blocks": {}},
        {"blocks": [{**BLOCK, "object_key": ""}]},
        {"blocks": [{**BLOCK, "size": -1}]},
        {"blocks": [{**BLOCK, "datasets": [{**DATASET, "table_of_contents": ["0"]}]}]},
        {"blocks": [{**BLOCK, "datasets": [{**DATASET, "table_of_contents": list(range(99))}]}]},
        {"blocks": [{**BLOCK, "datasets": [{**DATASET, "masks": [7]}]}]},
        *({"blocks": [{**BLOCK, "datasets": [without(field)]}]} for field in ("position", "tenant", "size", "masks")),
    ],
)
def test_a_response_of_another_service_is_an_error(answer: Any) -> None:
    with pytest.raises(IndexQueryFailed, match="unknown format"):
        ask(answers(answer))


def test_responses_that_are_not_json_are_retried_then_an_error() -> None:
    with pytest.raises(IndexQueryFailed, match="not JSON"):
        ask(answers(*[httpx.Response(200, text="<html>")] * ATTEMPTS_MAX))
