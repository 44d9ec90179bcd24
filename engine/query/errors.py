"""Errors of questions to profile data."""

from __future__ import annotations

from engine.core.errors import LithifyError


class InvalidQuestion(LithifyError):
    """A question makes no sense: its range, its step, its profile type; the message says what to change."""

    code = "invalid_question"


class QueryTooLarge(LithifyError):
    """Answering would take more than the limit ``name`` allows; nothing is answered."""

    code = "query_too_large"

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(name, limit)
        self.name = name
        self.limit = limit

    def __str__(self) -> str:
        return f"the answer needs more than {self.limit:,} {self.name}: ask for less time or fewer series"


class QueryBusy(LithifyError):
    """Other questions take all the memory there is for them, and enough wait already; ask again in ``seconds``."""

    code = "query_busy"
    retryable = True

    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        return f"too many questions at once: ask again in {self.seconds} s"


class QueryAbandoned(LithifyError):
    """Who asked has gone; nothing is answered."""

    code = "query_abandoned"


class QueryTimedOut(LithifyError):
    """The answer was not there within ``seconds``; nothing is answered."""

    code = "query_timed_out"
    retryable = True

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        return f"no answer within {self.seconds:g} s: ask for less time or fewer series"
