"""What one push has for one shard, on its way to whichever instance takes it."""

from __future__ import annotations

import time
from itertools import chain, islice

from engine.placement.delivery import Answer, deliver
from engine.placement.placer import Decision
from webadmin.base.not_taken import NotTaken
from webadmin.ingest.writer_clients import Exchange, WriterClients

ATTEMPTS_MAX = 6
ATTEMPT_SECONDS = 4.0
"""A writer that takes longer is taken for dead: a flush takes half a second. Stored twice is stored once: equal ids."""


class ShardDelivery:
    """``begin`` sends to the first candidate; ``finish`` waits, and goes on to the others if that one does not answer.

    Deadlines are on ``time.monotonic``'s clock.
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
        """Send, unless the first candidate is not worth asking now."""
        if self._writers.may_try(self._first.instance):
            self._begun = self._sent(self._first.instance, deadline)

    def finish(self, deadline: float) -> NotTaken | None:
        """Return None once it is durable, else why it is not."""
        candidates = islice(chain((self._first,), self._others), ATTEMPTS_MAX)
        answer = deliver(
            candidates,
            lambda instance: self._ask(instance, deadline),
            may_try=lambda instance: self._begun is not None or self._writers.may_try(instance),
        ).answer
        if answer is Answer.ACCEPTED:
            return None
        if answer is Answer.REFUSED:
            return NotTaken("invalid_argument", "writer_refused", self._said)
        message = f"not stored, send it again: {self._said or 'no writer answered'}"
        return NotTaken("unavailable", "not_durable", message)

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
        """Send; None if the time is over."""
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        return self._writers.begin(instance, self._addresses[instance], self._body, min(left, ATTEMPT_SECONDS))
