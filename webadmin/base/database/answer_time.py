"""Measure how long the database takes to answer."""

from __future__ import annotations

import time

from django.db import connection

ANSWER_MS_MAX = 25.0
"""Slower than this is reported: a poll and a swap are many statements, one after the other."""
TRIES = 5


def slow_database() -> str:
    """Return, as text, how long the database takes if the quickest of a few empty queries is too slow; "" otherwise."""
    quickest = float("inf")
    for _ in range(TRIES):
        begun = time.perf_counter()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
        quickest = min(quickest, 1000 * (time.perf_counter() - begun))
        if quickest <= ANSWER_MS_MAX:
            return ""
    return f"the database takes {quickest:.0f} ms for an empty query"
