"""Trying one instance after another: whom to skip, when to go on, when to stop. Pure: times and answers are given."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from engine.placement.candidates import Candidate

FAILURES_TO_OPEN = 3
OPEN_S = 1.0
SUCCESSES_TO_CLOSE = 5


class Answer(enum.Enum):
    """How an instance answered."""

    ACCEPTED = "accepted"  # durable
    REFUSED = "refused"  # the sender's fault: nobody else will take it
    FAILED = "failed"  # something is wrong with the data or the writer that another try repeats
    UNAVAILABLE = "unavailable"  # away, overloaded or too slow: another instance may take it


class BreakerState(enum.Enum):
    """Whether an instance is asked."""

    CLOSED = "closed"  # it is
    OPEN = "open"  # it is not, for a while
    HALF_OPEN = "half open"  # it is, and one failure opens again


@dataclass(slots=True)
class CircuitBreaker:
    """Spares an instance that does not answer, and everybody the wait. Only UNAVAILABLE counts as a failure."""

    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    successes: int = 0
    opened_at_s: float = 0.0

    def may_try(self, now_s: float) -> bool:
        """Say whether the instance is to be asked; an open breaker is half open when its time is over."""
        if self.state is BreakerState.OPEN and now_s - self.opened_at_s >= OPEN_S:
            self.state, self.successes = BreakerState.HALF_OPEN, 0
        return self.state is not BreakerState.OPEN

    def record(self, answer: Answer, now_s: float) -> None:
        """Count an answer."""
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
    """How it ended: the last answer, who gave it (None: nobody was left to ask), and who was asked before."""

    answer: Answer
    instance: str | None
    attempts: tuple[str, ...]


def deliver(
    candidates: Iterable[Candidate],
    send: Callable[[str], Answer],
    *,
    may_try: Callable[[str], bool] = lambda _: True,
) -> Delivery:
    """Send to one candidate after another until one accepts or refuses; ``send`` records what its breaker needs.

    Those whose breaker is open are asked last: if nobody else is there, asking is better than giving up.
    """
    attempts: list[str] = []
    spared: list[str] = []
    for instance in _with_spared(candidates, spared, may_try):
        attempts.append(instance)
        answer = send(instance)
        if answer is not Answer.UNAVAILABLE:
            return Delivery(answer=answer, instance=instance, attempts=tuple(attempts))
    return Delivery(answer=Answer.UNAVAILABLE, instance=None, attempts=tuple(attempts))


def _with_spared(candidates: Iterable[Candidate], spared: list[str], may_try: Callable[[str], bool]) -> Iterable[str]:
    for candidate in candidates:
        if may_try(candidate.instance):
            yield candidate.instance
        else:
            spared.append(candidate.instance)
    yield from spared
