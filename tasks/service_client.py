"""HTTP client of the service, with one operation: ``poll``.

A poll may be repeated: reports carry fencing tokens and renewals are idempotent. Temporary errors (no connection, no
response in time, any other status) are retried a few times with full jitter, within ``POLL_SECONDS_MAX``, which is
below a lease.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx

from engine.core.errors import LithifyError
from engine.protocol import wire
from engine.protocol.messages import PollRequest, PollResponse
from tasks.errors import CredentialRefused, PollRefused, ServiceUnavailable

POLL_PATH = "/api/v1/jobs/poll"
POLL_SECONDS_MAX = 8.0
CONNECT_SECONDS_MAX = 2.0
ATTEMPTS_MAX = 3
FIRST_DELAY_SECONDS = 0.1
RESPONSE_BYTES_MAX = 64 << 20
"""Largest response that is read; full capacity in jobs of 20 sources each stays far below."""


class ServiceClient:
    """Polls one service with one credential. ``pause`` waits between attempts and may return early."""

    def __init__(
        self,
        url: str,
        credential: str,
        *,
        pause: Callable[[float], object] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._pause = pause or threading.Event().wait
        self.on_response_lost: Callable[[], object] = lambda: None
        """Called when an attempt got no response, although the service may have handled it."""
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            headers={"Authorization": f"Bearer {credential}"},
            timeout=httpx.Timeout(POLL_SECONDS_MAX / 2, connect=CONNECT_SECONDS_MAX),
            transport=transport,
        )

    def poll(self, request: PollRequest) -> PollResponse:
        """Report, renew leases and request work.

        Raises ServiceUnavailable without a valid response in time, CredentialRefused on 401 or 403, and PollRefused on
        400, 413 or 422.
        """
        body = wire.request_to_wire(request)
        give_up_at = time.monotonic() + POLL_SECONDS_MAX
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return self._send(body)
            except ServiceUnavailable:
                self.on_response_lost()
                delay = random.uniform(0, FIRST_DELAY_SECONDS * 4 ** (attempt - 1))
                if attempt == ATTEMPTS_MAX or time.monotonic() + delay + CONNECT_SECONDS_MAX > give_up_at:
                    raise
                self._pause(delay)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _send(self, body: dict[str, Any]) -> PollResponse:
        try:
            with self._http.stream("POST", POLL_PATH, json=body) as response:
                content = _bounded_content(response)
        except httpx.HTTPError as error:
            raise ServiceUnavailable(f"{self._http.base_url}: {type(error).__name__} {error}".rstrip()) from error
        _check_status(response, content)
        return _decode(content)


def _bounded_content(response: httpx.Response) -> bytes:
    content = bytearray()
    for chunk in response.iter_bytes():
        content += chunk
        if len(content) > RESPONSE_BYTES_MAX:
            raise ServiceUnavailable(
                f"the response is larger than {RESPONSE_BYTES_MAX} bytes; check that SERVICE_URL is the service"
            )
    return bytes(content)


def _check_status(response: httpx.Response, content: bytes) -> None:
    if response.is_success:
        return
    message = f"{response.request.url}: {response.status_code} {content[:500].decode(errors='replace')}"
    if response.status_code in (401, 403):
        raise CredentialRefused(message)
    if response.status_code in (400, 413, 422):
        raise PollRefused(message)
    raise ServiceUnavailable(message)


def _decode(content: bytes) -> PollResponse:
    try:
        return wire.response_from_wire(json.loads(content))
    except (ValueError, LithifyError) as error:
        raise ServiceUnavailable(f"the response is not a poll response: {error}") from error
