"""The planner: which text files of a folder are merged next. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tests.lanes.echo.engine.jobs import Text

TEXTS_MIN = 3
"""Fewer files are not worth a merge."""


def plan_job(texts: Sequence[Text]) -> tuple[Text, ...]:
    """Return the sources of the next job of these files, oldest first; empty if there are too few."""
    return tuple(texts) if len(texts) >= TEXTS_MIN else ()
