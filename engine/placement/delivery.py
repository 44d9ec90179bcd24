"""Delivery of a push to one of several instances, with a circuit breaker per instance. Pure: no clock, no I/O."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from engine.placement.candidates import Candidate

FAILURES_TO_OPEN = 3
OPEN_S = 1.0
SUCCESSES_TO_CLOSE = 5


class Answer(enum.Enum):
    """The outcome of one attempt."""

    ACCEPTED = "accepted"  # durable
    REFUSED = "refused"  # rejected: the request is invalid for every instance
    FAILED = "failed"  # an error that another attempt would repeat
    UNAVAILABLE = "unavailable"  # unreachable, overloaded or too slow: another instance may accept it


class BreakerState(enum.Enum):
    """The state of a circuit breaker."""

    CLOSED = "closed"  # requests are sent
    OPEN = "open"  # no requests for OPEN_S seconds
    HALF_OPEN = "half open"  # requests are sent; one failure opens it again


@dataclass(slots=True)
class CircuitBreaker:
    """Stops requests to an unavailable instance. Only UNAVAILABLE counts as a failure."""

    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    successes: int = 0
    opened_at_s: float = 0.0

    def may_try(self, now_s: float) -> bool:
        """Return whether a request may be sent; an open breaker becomes half open after OPEN_S seconds."""
        if self.state is BreakerState.OPEN and now_s - self.opened_at_s >= OPEN_S:
            self.state, self.successes = BreakerState.HALF_OPEN, 0
        return self.state is not BreakerState.OPEN

    def record(self, answer: Answer, now_s: float) -> None:
        """Record the outcome of a request."""
        if answer is Answer.UNAVAILABLE:
            self.failures += 1
            if self.state is BreakerState.HALF_OPEN or self.failures >= FAILURES_TO_OPEN:
                self.state, self.opened_at_s, self.failures = BreakerState.OPEN, now_s, 0
            return
        self.failures = 0
        self.successes += 1
        if self.state is BreakerState.HALF_OPEN and self.successes >= SUCCESSES_TO_CLOSE:
            self.state = BreakerState.CLOSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The last answer, the instance that gave it (None if no candidate is left), and the attempted instances."""

    answer: Answer
    instance: str | None
    attempts: tuple[str, ...]


def deliver(
    candidates: Iterable[Candidate],
    send: Callable[[str], Answer],
    *,
    may_try: Callable[[str], bool] = lambda _: True,
) -> Delivery:
    """Send to one candidate after another until one is available; ``send`` also updates its breaker.

    Candidates with an open breaker are attempted last.
    """
    attempts: list[str] = []
    for instance in _closed_first(candidates, may_try):
        attempts.append(instance)
        answer = send(instance)
        if answer is not Answer.UNAVAILABLE:
            return Delivery(answer=answer, instance=instance, attempts=tuple(attempts))
    return Delivery(answer=Answer.UNAVAILABLE, instance=None, attempts=tuple(attempts))


def _closed_first(candidates: Iterable[Candidate], may_try: Callable[[str], bool]) -> Iterable[str]:
    skipped: list[str] = []
    for candidate in candidates:
        if may_try(candidate.instance):
            yield candidate.instance
        else:
            skipped.append(candidate.instance)
    yield from skipped
