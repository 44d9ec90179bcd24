"""Queries the index for a Spark job, over HTTP, on the driver: all pages are of one command index.

The query is read-only, so temporary errors are retried. If the index changed between two pages (409), the query starts
again with the first page.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from engine.protocol.errors import InvalidMessage
from engine.query.block_query import IndexSnapshot, index_snapshot_from_json, join_pages, query_to_json
from engine.query.model import Question
from spark.errors import IndexQueryFailed, IndexQueryRefused

QUERY_PATH = "/api/v1/blocks/query"
RESPONSE_SECONDS_MAX = 120.0
CONNECT_SECONDS_MAX = 5.0
ATTEMPTS_MAX = 4
FIRST_DELAY_SECONDS = 0.25
RESPONSE_BYTES_MAX = 1 << 30
"""Limit of one page. A dataset takes about half a kilobyte."""
PAGES_MAX = 100
"""Limit of the pages of a query: five million datasets."""
STARTS_MAX = 5
INDEX_MOVED = 409


def query_index(
    url: str,
    credential: str,
    tenant: str,
    question: Question,
    *,
    pause: Callable[[float], object] | None = None,
    transport: httpx.BaseTransport | None = None,
) -> IndexSnapshot:
    """Return the blocks that a question covers; ``pause`` waits between attempts.

    Raises IndexQueryRefused if the service rejects the query, has no such tenant or has more than PAGES_MAX pages, and
    IndexQueryFailed if there is no valid response, or if blocks were removed between pages STARTS_MAX times.
    """
    pause = pause or threading.Event().wait
    with httpx.Client(
        base_url=url.rstrip("/"),
        headers={"Authorization": f"Bearer {credential}"},
        timeout=httpx.Timeout(RESPONSE_SECONDS_MAX, connect=CONNECT_SECONDS_MAX),
        transport=transport,
    ) as http:
        for start in range(STARTS_MAX):
            try:
                found = join_pages(_pages(http, tenant, question, pause))
                break
            except _IndexMoved as error:
                if start == STARTS_MAX - 1:
                    raise IndexQueryFailed(
                        f"{url}: blocks were removed while the index was read, {STARTS_MAX} times: repeat the "
                        f"query, or query a shorter time range ({error})"
                    ) from error
                pause(FIRST_DELAY_SECONDS * 2**start)
    if found.unknown_tenants:
        raise IndexQueryRefused(f"{url}: no data was ever stored for tenant {found.unknown_tenants[0]!r}")
    return found


class _Unusable(IndexQueryFailed):
    """The response has an unknown format; retries would not help."""


class _IndexMoved(Exception):
    """The cursor of the last page is no longer valid."""


def _pages(
    http: httpx.Client, tenant: str, question: Question, pause: Callable[[float], object]
) -> Iterator[IndexSnapshot]:
    cursor = ""
    for _ in range(PAGES_MAX):
        page = _page(http, tenant, question, cursor, pause)
        yield page
        if not page.cursor:
            return
        cursor = page.cursor
    raise IndexQueryRefused(f"{http.base_url}: more than {PAGES_MAX} pages of blocks: query a shorter time range")


def _page(
    http: httpx.Client, tenant: str, question: Question, cursor: str, pause: Callable[[float], object]
) -> IndexSnapshot:
    for attempt in range(ATTEMPTS_MAX - 1):
        try:
            return _read_page(http, tenant, question, cursor)
        except _Unusable:
            raise
        except IndexQueryFailed:
            pause(FIRST_DELAY_SECONDS * 2**attempt)
    return _read_page(http, tenant, question, cursor)


def _read_page(http: httpx.Client, tenant: str, question: Question, cursor: str) -> IndexSnapshot:
    response = _send(http, query_to_json(tenant, question, cursor))
    try:
        return index_snapshot_from_json(response, question)
    except InvalidMessage as error:
        raise _Unusable(f"{http.base_url}: the response has an unknown format: {error}") from error


def _send(http: httpx.Client, body: dict[str, Any]) -> Any:
    try:
        with http.stream("POST", QUERY_PATH, json=body) as response:
            content = _bounded_content(response)
    except httpx.HTTPError as error:
        raise IndexQueryFailed(f"{http.base_url}: {type(error).__name__} {error}".rstrip()) from error
    except httpx.InvalidURL as error:
        raise IndexQueryRefused(f"{http.base_url}: {error}") from error
    if response.status_code == INDEX_MOVED:
        raise _IndexMoved(content[:500].decode(errors="replace"))
    if not response.is_success:
        message = f"{response.request.url}: {response.status_code} {content[:500].decode(errors='replace')}"
        refused = 400 <= response.status_code < 500 and response.status_code != 429
        raise IndexQueryRefused(message) if refused else IndexQueryFailed(message)
    try:
        return json.loads(content)
    except ValueError as error:
        raise IndexQueryFailed(f"{response.request.url}: the response is not JSON: {error}") from error


def _bounded_content(response: httpx.Response) -> bytes:
    content = bytearray()
    for chunk in response.iter_bytes():
        content += chunk
        if len(content) > RESPONSE_BYTES_MAX:
            raise IndexQueryRefused(
                f"{response.request.url}: more than {RESPONSE_BYTES_MAX} bytes of blocks: query a shorter time range"
            )
    return bytes(content)
