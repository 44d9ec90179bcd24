"""Rows of samples as a table would show them: those of the naive evaluation, and those that were read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from engine.query.model import Question
from tests.engine.formats.profile_block.factories import ProfileRow
from tests.engine.query import naive

Shown = Counter[tuple[Any, ...]]


def expected(rows: Iterable[ProfileRow], question: Question) -> Shown:
    """Return (time in µs, service, public labels, type, stack, value) of every sample that answers and has a value."""
    found: Shown = Counter()
    for row in naive.answering(rows, question):
        labels = naive.text_labels(row)
        for sample in row.samples:
            if sample.value <= 0:
                continue
            if question.span_ids and sample.span_id not in question.span_ids:
                continue
            if question.trace_ids and sample.trace_id not in question.trace_ids:
                continue
            public = {name: value for name, value in labels.items() if not name.startswith("__")}
            shown = (row.time_ns // 1000, labels["service_name"], _sorted(public), labels["__profile_type__"])
            found[*shown, sample.stack, sample.value] += 1
    return found


def read(batches: Iterable[pa.RecordBatch]) -> Shown:
    """Return the same of batches with the usual columns."""
    found: Shown = Counter()
    for batch in batches:
        times = batch.column("time").cast(pa.int64())
        columns = (times, *(batch.column(name) for name in ("service", "labels", "type", "stack", "value")))
        for time, service, labels, kind, stack, value in zip(*(each.to_pylist() for each in columns), strict=True):
            found[time, service, _sorted(dict(labels)), kind, tuple(stack), value] += 1
    return found


def without_stacks(shown: Shown) -> Shown:
    """Return the same without the stack."""
    found: Shown = Counter()
    for row, count in shown.items():
        found[(*row[:4], row[5])] += count
    return found


def _sorted(labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))
