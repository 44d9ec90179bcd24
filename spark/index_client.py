"""Reads the index for a Spark job, over HTTP, on the driver: pages that all show one command index.

Reading changes nothing, so that temporary errors are retried. If the service says that the index moved between two
pages (409), reading begins again with the first page.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from engine.protocol.errors import InvalidMessage
from engine.query.block_query import Look, join_pages, look_from_json, query_to_json
from engine.query.model import Question
from spark.errors import LookFailed, LookRefused

QUERY_PATH = "/api/v1/blocks/query"
ANSWER_SECONDS_MAX = 120.0
CONNECT_SECONDS_MAX = 5.0
ATTEMPTS_MAX = 4
FIRST_DELAY_SECONDS = 0.25
ANSWER_BYTES_MAX = 1 << 30
"""Of one page. A dataset takes about half a kilobyte."""
PAGES_MAX = 100
"""Five million datasets."""
STARTS_MAX = 5
INDEX_MOVED = 409


def look(
    url: str,
    credential: str,
    tenant: str,
    question: Question,
    *,
    pause: Callable[[float], object] | None = None,
    transport: httpx.BaseTransport | None = None,
) -> Look:
    """Ask the service which blocks a question is about; ``pause`` waits between attempts.

    Raises LookRefused if the service refuses, knows no such tenant or has more than PAGES_MAX pages, and LookFailed if
    there is no usable answer, or if blocks were removed between pages STARTS_MAX times.
    """
    pause = pause or threading.Event().wait
    with httpx.Client(
        base_url=url.rstrip("/"),
        headers={"Authorization": f"Bearer {credential}"},
        timeout=httpx.Timeout(ANSWER_SECONDS_MAX, connect=CONNECT_SECONDS_MAX),
        transport=transport,
    ) as http:
        for start in range(STARTS_MAX):
            try:
                found = join_pages(_pages(http, tenant, question, pause))
                break
            except _IndexMoved as error:
                if start == STARTS_MAX - 1:
                    raise LookFailed(
                        f"{url}: blocks were removed while the index was read, {STARTS_MAX} times: ask again, or for "
                        f"less time ({error})"
                    ) from error
                pause(FIRST_DELAY_SECONDS * 2**start)
    if found.unknown_tenants:
        raise LookRefused(f"{url}: there never was any data of tenant {found.unknown_tenants[0]!r}")
    return found


class _Unusable(LookFailed):
    """The answer is not one of this service's: another attempt would read the same."""


class _IndexMoved(Exception):
    """The cursor of the last page is no longer valid."""


def _pages(http: httpx.Client, tenant: str, question: Question, pause: Callable[[float], object]) -> Iterator[Look]:
    cursor = ""
    for _ in range(PAGES_MAX):
        page = _page(http, tenant, question, cursor, pause)
        yield page
        if not page.cursor:
            return
        cursor = page.cursor
    raise LookRefused(f"{http.base_url}: more than {PAGES_MAX} pages of blocks: ask for less time")


def _page(http: httpx.Client, tenant: str, question: Question, cursor: str, pause: Callable[[float], object]) -> Look:
    for attempt in range(ATTEMPTS_MAX - 1):
        try:
            return _read_page(http, tenant, question, cursor)
        except _Unusable:
            raise
        except LookFailed:
            pause(FIRST_DELAY_SECONDS * 2**attempt)
    return _read_page(http, tenant, question, cursor)


def _read_page(http: httpx.Client, tenant: str, question: Question, cursor: str) -> Look:
    answer = _ask(http, query_to_json(tenant, question, cursor))
    try:
        return look_from_json(answer, question)
    except InvalidMessage as error:
        raise _Unusable(f"{http.base_url}: the answer is not one of this service's: {error}") from error


def _ask(http: httpx.Client, body: dict[str, Any]) -> Any:
    try:
        with http.stream("POST", QUERY_PATH, json=body) as answer:
            content = _bounded_content(answer)
    except httpx.HTTPError as error:
        raise LookFailed(f"{http.base_url}: {type(error).__name__} {error}".rstrip()) from error
    except httpx.InvalidURL as error:
        raise LookRefused(f"{http.base_url}: {error}") from error
    if answer.status_code == INDEX_MOVED:
        raise _IndexMoved(content[:500].decode(errors="replace"))
    if not answer.is_success:
        said = f"{answer.request.url}: {answer.status_code} {content[:500].decode(errors='replace')}"
        refused = 400 <= answer.status_code < 500 and answer.status_code != 429
        raise LookRefused(said) if refused else LookFailed(said)
    try:
        return json.loads(content)
    except ValueError as error:
        raise LookFailed(f"{answer.request.url}: the answer is no JSON: {error}") from error


def _bounded_content(answer: httpx.Response) -> bytes:
    content = bytearray()
    for chunk in answer.iter_bytes():
        content += chunk
        if len(content) > ANSWER_BYTES_MAX:
            raise LookRefused(f"{answer.request.url}: more than {ANSWER_BYTES_MAX} bytes of blocks: ask for less time")
    return bytes(content)
