"""Delivery of one push's profiles for one shard, with failover between instances."""

from __future__ import annotations

import time
from itertools import chain, islice

from engine.placement.delivery import Answer, deliver
from engine.placement.placer import Decision
from webadmin.base.push_rejected import PushRejected
from webadmin.ingest.writer_clients import Exchange, WriterClients

ATTEMPTS_MAX = 6
ATTEMPT_SECONDS = 4.0
"""Timeout of one attempt, in seconds; a flush takes half a second.

A retry after a slow success is harmless: duplicates have equal ids.
"""


class ShardDelivery:
    """Send with ``begin`` to the first candidate; ``finish`` waits, and retries with the other candidates.

    Deadlines are ``time.monotonic`` values.
    """

    def __init__(self, writers: WriterClients, addresses: dict[str, str], decision: Decision, body: bytes) -> None:
        self._writers = writers
        self._addresses = addresses
        self._body = body
        self._others = iter(decision.candidates())
        self._first = next(self._others)
        self._begun: Exchange | None = None
        self._said = ""

    def begin(self, deadline: float) -> None:
        """Send to the first candidate, unless its circuit breaker is open."""
        if self._writers.may_try(self._first.instance):
            self._begun = self._sent(self._first.instance, deadline)

    def finish(self, deadline: float) -> PushRejected | None:
        """Return None once the profiles are durable, else the error."""
        candidates = islice(chain((self._first,), self._others), ATTEMPTS_MAX)
        answer = deliver(
            candidates,
            lambda instance: self._ask(instance, deadline),
            may_try=lambda instance: self._begun is not None or self._writers.may_try(instance),
        ).answer
        if answer is Answer.ACCEPTED:
            return None
        if answer is Answer.REFUSED:
            return PushRejected("invalid_argument", "writer_refused", self._said)
        message = f"not stored, retry: {self._said or 'no writer responded'}"
        return PushRejected("unavailable", "not_durable", message)

    def _ask(self, instance: str, deadline: float) -> Answer:
        exchange, self._begun = self._begun, None
        if exchange is None:
            exchange = self._sent(instance, deadline)
        if exchange is None:
            return Answer.UNAVAILABLE
        reply = self._writers.finish(exchange)
        self._said = reply.message
        return reply.answer

    def _sent(self, instance: str, deadline: float) -> Exchange | None:
        """Send to an instance; return None if the deadline has passed."""
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        return self._writers.begin(instance, self._addresses[instance], self._body, min(left, ATTEMPT_SECONDS))
