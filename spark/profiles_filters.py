"""SQL conditions on time, service and type that the data source uses for pruning.

Spark evaluates every condition again on the rows, so a condition that is not supported here costs time only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from engine.core.errors import LithifyError
from engine.formats.profile_block.selectors import matcher
from engine.query.model import PROFILE_TYPE, QueryBlock, Question


class PushedFilters:
    """A question narrowed by conditions; ``question`` is None if no row can match them."""

    def __init__(self, question: Question) -> None:
        self.question: Question | None = question
        self._services: frozenset[str] | None = None

    def add(self, condition: Filter) -> None:
        """Narrow the question by a condition, if it is supported."""
        column = getattr(condition, "attribute", ())
        if column == ("time",):
            self._add_time(condition)
        elif column == ("service",) and (values := _values(condition)) is not None:
            self._services = values if self._services is None else self._services & values
        elif column == ("type",) and "" not in (values := _values(condition) or frozenset({""})):
            self._add_types(values)

    def chosen(self, blocks: Iterable[QueryBlock]) -> list[QueryBlock]:
        """Return the blocks with the datasets of the selected services."""
        if self._services is None:
            return list(blocks)
        chosen = (
            replace(block, datasets=tuple(each for each in block.datasets if each.name in (self._services or ())))
            for block in blocks
        )
        return [block for block in chosen if block.datasets]

    def _add_time(self, condition: Filter) -> None:
        milliseconds = _milliseconds(getattr(condition, "value", None))
        if self.question is None or milliseconds is None:
            return
        start_ms, end_ms = self.question.start_ms, self.question.end_ms
        # The bound is inclusive, in milliseconds; Spark filters rows within the same millisecond.
        if isinstance(condition, GreaterThan | GreaterThanOrEqual | EqualTo):
            start_ms = max(start_ms, milliseconds)
        if isinstance(condition, LessThan | LessThanOrEqual | EqualTo):
            end_ms = min(end_ms, milliseconds)
        self.question = replace(self.question, start_ms=start_ms, end_ms=end_ms) if start_ms <= end_ms else None

    def _add_types(self, values: frozenset[str]) -> None:
        if self.question is None:
            return
        if len(values) == 1:
            operator, text = "=", next(iter(values))
        else:
            operator, text = "=~", "|".join(re.escape(value) for value in sorted(values))
        try:
            condition = matcher(PROFILE_TYPE, operator, text)
        except LithifyError:  # the pattern exceeds the limit of its length
            return
        self.question = replace(self.question, matchers=(*self.question.matchers, condition))


def _values(condition: Filter) -> frozenset[str] | None:
    """Return the strings that a condition allows, or None if it is of another kind."""
    if isinstance(condition, EqualTo):
        values: tuple[Any, ...] = (condition.value,)
    elif isinstance(condition, In):
        values = tuple(value for value in condition.value if value is not None)
    else:
        return None
    return frozenset(values) if values and all(isinstance(value, str) for value in values) else None


def _milliseconds(value: object) -> int | None:
    if not isinstance(value, datetime):
        return None
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    seconds = int(moment.replace(microsecond=0).timestamp())
    return seconds * 1000 + moment.microsecond // 1000
