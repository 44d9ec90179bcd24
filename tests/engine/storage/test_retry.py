"""Requests are repeated with growing, jittered pauses, a bounded number of times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.storage.retry import RetryPolicy


class Flaky:
    """Fails ``failures`` times, then answers."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.failures, self.error, self.attempts = failures, error, []

    def __call__(self, attempt: int) -> str:
        self.attempts.append(attempt)
        if len(self.attempts) <= self.failures:
            raise self.error
        return "answer"


def retrying(pauses: list[float], *, fraction: float = 1.0, attempts: int = 4) -> RetryPolicy:
    return RetryPolicy(
        attempts=attempts,
        pause_first=1.0,
        pause_max=3.0,
        draw=lambda low, high: low + fraction * (high - low),
        sleep=pauses.append,
    )


def test_a_request_is_repeated_until_it_succeeds() -> None:
    pauses: list[float] = []
    request = Flaky(3, OSError())
    assert retrying(pauses).run(request, lambda error: True) == "answer"
    assert request.attempts == [0, 1, 2, 3]
    assert pauses == [1.0, 2.0, 3.0]


def test_the_last_error_is_raised_as_it_is() -> None:
    pauses: list[float] = []
    error = OSError("still down")
    with pytest.raises(OSError, match="still down") as caught:
        retrying(pauses).run(Flaky(4, error), lambda error: True)
    assert caught.value is error
    assert len(pauses) == 3


def test_a_permanent_error_is_not_repeated() -> None:
    pauses: list[float] = []
    request = Flaky(1, ValueError("bad"))
    with pytest.raises(ValueError, match="bad"):
        retrying(pauses).run(request, lambda error: isinstance(error, OSError))
    assert request.attempts == [0]
    assert pauses == []


@given(fraction=st.floats(0, 1), attempts=st.integers(1, 8))
def test_pauses_are_drawn_between_zero_and_the_bound(fraction: float, attempts: int) -> None:
    pauses: list[float] = []
    skips_max = retrying(pauses, fraction=fraction, attempts=attempts)
    with pytest.raises(OSError):
        skips_max.run(Flaky(99, OSError("down")), lambda error: True)
    assert pauses == [fraction * skips_max.pause_bound(number) for number in range(attempts - 1)]
    assert all(pause <= 3.0 for pause in pauses)
