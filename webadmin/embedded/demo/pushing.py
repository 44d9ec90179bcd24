"""Send planned pushes to the stack over HTTP, as profilers do: gzip, a credential, a response once all is durable."""

from __future__ import annotations

import gzip
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from engine.core.errors import LithifyError
from engine.formats.pprof.pprof import parse_profile
from engine.formats.pprof.pprof_encode import encode_profile
from engine.formats.pprof.pprof_model import Profile
from engine.formats.proto import push_pb2
from webadmin.embedded.demo.plan import PlannedPush

PUSH = "/push.v1.PusherService/Push"
SENDERS = 12
"""Concurrent requests. Each waits for its flush; more would use every thread of web."""
TRIES = 6
FIRST_PAUSE_SECONDS = 0.25  # Before the first retry; it doubles.
ANSWER_SECONDS = 30.0
UNAVAILABLE = (429, 502, 503, 504)
NANOSECONDS_PER_MS = 1_000_000
GZIP_LEVEL = 1
PROFILES_KEPT = 4096  # Parsed recordings; each is sent several times.
HEADERS = {"Content-Type": "application/proto", "Content-Encoding": "gzip", "Connect-Protocol-Version": "1"}


class PushFailed(LithifyError):
    """A push was rejected, or retries were exhausted; the error has the tenant, service and response."""

    code = "push_failed"

    def __init__(self, push: PlannedPush, answer: str) -> None:
        super().__init__(f"a push of {push.service} for tenant {push.tenant} was rejected: {answer}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """Acknowledged pushes: requests, their profiles and samples, and the distinct functions they name."""

    requests: int = 0
    profiles: int = 0
    samples: int = 0
    functions: int = 0


class Pusher:
    """The profilers of a fleet. ``passwords`` are credentials by tenant. A context manager for one thread."""

    def __init__(self, address: str, passwords: Mapping[str, str]) -> None:
        self._passwords = dict(passwords)
        self._client = httpx.Client(base_url=address, timeout=ANSWER_SECONDS, headers=HEADERS, trust_env=False)
        self._senders = ThreadPoolExecutor(SENDERS, "sender")
        self._functions: set[bytes] = set()
        self._parse = lru_cache(maxsize=PROFILES_KEPT)(_parsed)
        self.pushed = Pushed()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._senders.shutdown(cancel_futures=True)
        self._client.close()

    def push(self, pushes: Sequence[PlannedPush]) -> None:
        """Send these concurrently; return when all are durable and visible to queries. Raises PushFailed."""
        profiles = [[self._parse(series.window) for series in push.series] for push in pushes]
        for _ in self._senders.map(self._send, pushes, profiles):
            pass
        sent = [profile for one in profiles for profile in one]
        self._functions.update(profile.strings[name] for profile in sent for name in profile.functions.names)
        self.pushed = Pushed(
            requests=self.pushed.requests + len(pushes),
            profiles=self.pushed.profiles + len(sent),
            samples=self.pushed.samples + sum(len(profile.samples) for profile in sent),
            functions=len(self._functions),
        )

    def _send(self, push: PlannedPush, profiles: Sequence[Profile]) -> None:
        body = gzip.compress(encode_push(push, profiles), GZIP_LEVEL)
        authorization = httpx.BasicAuth(push.service, self._passwords[push.tenant])
        reason = ""
        for number in range(TRIES):
            if number:  # A retry is stored once: profile IDs are derived from content.
                time.sleep(FIRST_PAUSE_SECONDS * 2 ** (number - 1))
            try:
                answer = self._client.post(PUSH, content=body, auth=authorization)
            except httpx.TransportError as error:
                reason = f"{type(error).__name__}: {error}"
                continue
            if answer.is_success:
                return
            reason = f"{answer.status_code} {answer.text[:500]}"
            if answer.status_code not in UNAVAILABLE:
                raise PushFailed(push, reason)
        raise PushFailed(push, f"{reason} (tried {TRIES} times)")


def encode_push(push: PlannedPush, profiles: Sequence[Profile]) -> bytes:
    """Return the message of a request; ``profiles`` are those of its series, and get the time of the push."""
    request = push_pb2.PushRequest()
    for series, profile in zip(push.series, profiles, strict=True):
        sent = request.series.add()
        for name, value in series.labels:
            sent.labels.add(name=name, value=value)
        fresh = replace(profile, time_ns=push.time_ms * NANOSECONDS_PER_MS)
        sent.samples.add(raw_profile=encode_profile(fresh, compress=False), ID=str(uuid.uuid4()))
    return request.SerializeToString()


def _parsed(window: Path) -> Profile:
    return parse_profile(window.read_bytes())
