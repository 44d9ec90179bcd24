"""The way of a Spark job to the service: one look at the index, over HTTP, on the driver.

A look may be repeated, so what may be a passing trouble is tried again a few times.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import httpx

from engine.profiles.query.model import Question
from engine.protocol.block_query import Look, look_from_json, query_to_json
from engine.protocol.errors import InvalidMessage
from spark.errors import LookFailed, LookRefused

QUERY_PATH = "/api/v1/blocks/query"
ANSWER_SECONDS_MAX = 120.0
CONNECT_SECONDS_MAX = 5.0
ATTEMPTS_MAX = 4
FIRST_DELAY_SECONDS = 0.25
ANSWER_BYTES_MAX = 1 << 30
"""A dataset takes about half a kilobyte."""


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

    LookRefused: the service says that it will not, or knows no such tenant. LookFailed: no usable answer.
    """
    pause = pause or threading.Event().wait
    with httpx.Client(
        base_url=url.rstrip("/"),
        headers={"Authorization": f"Bearer {credential}"},
        timeout=httpx.Timeout(ANSWER_SECONDS_MAX, connect=CONNECT_SECONDS_MAX),
        transport=transport,
    ) as http:
        for attempt in range(ATTEMPTS_MAX):
            try:
                found = look_from_json(_ask(http, query_to_json(tenant, question)), question)
                break
            except InvalidMessage as error:
                raise LookFailed(f"{url}: the answer is not one of this service's: {error}") from error
            except LookFailed:
                if attempt == ATTEMPTS_MAX - 1:
                    raise
                pause(FIRST_DELAY_SECONDS * 2**attempt)
    if found.unknown_tenants:
        raise LookRefused(f"{url}: there never was any data of tenant {found.unknown_tenants[0]!r}")
    return found


def _ask(http: httpx.Client, body: dict[str, Any]) -> Any:
    try:
        with http.stream("POST", QUERY_PATH, json=body) as answer:
            content = _bounded_content(answer)
    except httpx.HTTPError as error:
        raise LookFailed(f"{http.base_url}: {type(error).__name__} {error}".rstrip()) from error
    except httpx.InvalidURL as error:
        raise LookRefused(f"{http.base_url}: {error}") from error
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
