"""Errors of profile queries."""

from __future__ import annotations

from engine.core.errors import LithifyError


class InvalidQuestion(LithifyError):
    """The query has an invalid range, step or profile type; the message names what to change."""

    code = "invalid_question"


class QueryTooLarge(LithifyError):
    """The query exceeds the limit ``name``; there is no partial answer."""

    code = "query_too_large"

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(name, limit)
        self.name = name
        self.limit = limit

    def __str__(self) -> str:
        return f"the answer needs more than {self.limit:,} {self.name}: ask for less time or fewer series"


class QueryBusy(LithifyError):
    """The memory for queries is in use and the queue is full; retry after ``seconds``."""

    code = "query_busy"
    retryable = True

    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        return f"too many questions at once: ask again in {self.seconds} s"


class QueryAbandoned(LithifyError):
    """The caller has disconnected."""

    code = "query_abandoned"


class QueryTimedOut(LithifyError):
    """The query did not finish within ``seconds``; there is no partial answer."""

    code = "query_timed_out"
    retryable = True

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        return f"no answer within {self.seconds:g} s: ask for less time or fewer series"
