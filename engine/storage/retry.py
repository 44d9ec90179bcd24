"""Retries of requests with exponential back-off and full jitter: each pause is drawn between 0 and a growing bound.

Full jitter spreads the retries of clients that a store rejected at the same time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The number of attempts and the pauses between them, in seconds."""

    attempts: int = 6
    pause_first: float = 0.1
    pause_max: float = 10.0
    draw: Callable[[float, float], float] = field(default=random.uniform)
    sleep: Callable[[float], object] = field(default=time.sleep)

    def run(self, request: Callable[[int], _Answer], is_retryable: Callable[[Exception], bool]) -> _Answer:
        """Call ``request(attempt)``, with attempts counted from 0, until it succeeds; raise the last error."""
        for attempt in range(self.attempts - 1):
            try:
                return request(attempt)
            except Exception as error:
                if not is_retryable(error):
                    raise
                self.sleep(self.draw(0.0, self.pause_bound(attempt)))
        return request(self.attempts - 1)

    def pause_bound(self, attempt: int) -> float:
        """Return the longest pause in seconds after attempt ``attempt``, counted from 0."""
        return min(self.pause_max, self.pause_first * 2.0**attempt)
