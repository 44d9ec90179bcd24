"""Going from one instance to the next, and who is a member (sheet, sections 5 and 11; rows L37 and L38)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.placement.candidates import Candidate
from engine.placement.delivery import Answer, BreakerState, CircuitBreaker, deliver
from engine.placement.membership import Heartbeat, ring_members
from engine.placement.model import Instance, InstanceState, PlacementRules
from engine.placement.placer import Placer
from engine.placement.ring import EMPTY_RING, change_ring

NAMES = [f"w{number}" for number in range(9)]
CANDIDATES = [Candidate(name, position, 1) for position, name in enumerate(NAMES)]


def answering(**answers: Answer) -> Callable[[str], Answer]:
    return lambda instance: answers.get(instance, Answer.UNAVAILABLE)


@pytest.mark.row("L37")
def test_the_next_instance_is_tried_until_one_accepts() -> None:
    result = deliver(CANDIDATES, answering(w3=Answer.ACCEPTED))
    assert (result.answer, result.instance, result.attempts) == (Answer.ACCEPTED, "w3", ("w0", "w1", "w2", "w3"))


@pytest.mark.row("L38")
@pytest.mark.parametrize("answer", [Answer.REFUSED, Answer.FAILED])
def test_a_permanent_error_ends_delivery(answer: Answer) -> None:
    result = deliver(CANDIDATES, answering(w1=answer, w2=Answer.ACCEPTED))
    assert (result.answer, result.instance, result.attempts) == (answer, "w1", ("w0", "w1"))


def test_every_instance_is_tried_once_before_giving_up() -> None:
    result = deliver(CANDIDATES, answering())
    assert (result.answer, result.instance, result.attempts) == (Answer.UNAVAILABLE, None, tuple(NAMES))


def test_instances_with_an_open_breaker_are_tried_last() -> None:
    result = deliver(CANDIDATES, answering(w0=Answer.ACCEPTED), may_try=lambda name: name != "w0")
    assert result.attempts == (*NAMES[1:], "w0")
    assert result.answer is Answer.ACCEPTED


def test_candidates_are_computed_lazily() -> None:
    ring = change_ring(EMPTY_RING, [Instance(id=name) for name in NAMES])
    decision = Placer(ring, PlacementRules()).decide("a", "checkout", 1)
    rest = decision.candidates()
    result = deliver(rest, lambda _: Answer.ACCEPTED)
    assert result.attempts == (decision.instance,)
    assert len(list(rest)) == len(NAMES) - 1


def test_a_breaker_opens_after_three_failures_in_a_row_and_closes_after_five_successes() -> None:
    breaker = CircuitBreaker()
    for answer in (Answer.UNAVAILABLE, Answer.UNAVAILABLE, Answer.REFUSED, Answer.UNAVAILABLE, Answer.UNAVAILABLE):
        breaker.record(answer, 0.0)
        assert breaker.may_try(0.0)
    breaker.record(Answer.UNAVAILABLE, 10.0)
    assert [breaker.may_try(now) for now in (10.0, 10.9, 11.0)] == [False, False, True]
    for _ in range(4):
        breaker.record(Answer.ACCEPTED, 11.0)
    assert breaker.state is BreakerState.HALF_OPEN
    breaker.record(Answer.ACCEPTED, 11.0)
    assert breaker.state is BreakerState.CLOSED


def test_one_failure_opens_a_half_open_breaker_again() -> None:
    breaker = CircuitBreaker()
    for _ in range(3):
        breaker.record(Answer.UNAVAILABLE, 0.0)
    assert breaker.may_try(1.0)
    breaker.record(Answer.UNAVAILABLE, 1.0)
    assert not breaker.may_try(1.5)


def heartbeat(name: str, at_ms: int, state: InstanceState = InstanceState.ACTIVE) -> Heartbeat:
    return Heartbeat(instance=Instance(id=name, state=state), at_ms=at_ms)


@pytest.mark.row("placement-weakness-17.10")
def test_a_missed_heartbeat_moves_nothing_and_others_take_over_at_once() -> None:
    beats = [heartbeat("a", 100_000), heartbeat("b", 96_000), heartbeat("c", 40_000), heartbeat("d", 100_000)]
    present = ring_members(beats, 100_000)
    assert [(one.id, one.state) for one in present] == [
        ("a", InstanceState.ACTIVE),
        ("b", InstanceState.LEAVING),
        ("d", InstanceState.ACTIVE),
    ]
    before = change_ring(EMPTY_RING, ring_members([heartbeat(name, 0) for name in "abd"], 0))
    during = change_ring(before, present)
    assert during.tables == before.tables
    placed = Placer(during, PlacementRules())
    assert {placed.decide("t", f"s{number}", 0).instance for number in range(200)} == {"a", "d"}


def test_a_leaving_instance_loses_its_shards_at_once() -> None:
    assert ring_members([heartbeat("a", 0, InstanceState.LEAVING), heartbeat("b", 0)], 1) == [Instance(id="b")]
    assert ring_members([heartbeat("b", 0)], 60_000) == []
