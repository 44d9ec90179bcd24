"""Questions answered in the plainest way from rows in memory: what the query engine must say of the same rows."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from engine.formats.profile_block.selectors import Matcher, MatchOperator
from engine.query.flame.stack_table import StackTable
from engine.query.model import QueryBlock, Question
from engine.query.select_points import Aggregation, Grid
from tests.engine.formats.profile_block.factories import ProfileRow

Stacks = Counter[tuple[str, ...]]


class Folded:
    """Adds stacks up by function names, root first, walking from each node to the root; inlined functions too."""

    def __init__(self) -> None:
        self.stacks: Stacks = Counter()

    def add_stacks(self, stacks: StackTable, nodes: npt.NDArray[np.int32], values: npt.NDArray[np.int64]) -> None:
        for node, amount in zip(nodes.tolist(), values.tolist(), strict=True):
            names: list[str] = []
            while stacks.parents[node] >= 0:
                location = stacks.locations[node]
                frames = stacks.frames[stacks.frame_starts[location] : stacks.frame_starts[location + 1]]
                names += [str(stacks.names[frame], "utf-8") for frame in frames]  # type: ignore[arg-type]
                node = int(stacks.parents[node])
            self.stacks[tuple(reversed(names))] += amount


def matches(labels: dict[str, str], condition: Matcher) -> bool:
    value = labels.get(condition.name, "")
    if condition.operator.is_pattern:
        fits = re.fullmatch(condition.value, value, re.DOTALL) is not None
    else:
        fits = value == condition.value
    return fits != condition.operator.is_negative


def text_labels(row: ProfileRow) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in row.labels}


def answering(rows: Iterable[ProfileRow], question: Question) -> list[ProfileRow]:
    """Return the rows that answer, each once."""
    found: dict[tuple[object, ...], ProfileRow] = {}
    for row in rows:
        in_range = question.start_ms <= row.time_ns // 1_000_000 <= question.end_ms
        wanted = all(matches(text_labels(row), condition) for condition in question.matchers)
        if in_range and wanted and (not question.profile_ids or row.id in question.profile_ids):
            found.setdefault((row.labels, row.time_ns, row.id), row)
    return list(found.values())


def stacks(rows: Iterable[ProfileRow], question: Question) -> Stacks:
    total: Stacks = Counter()
    for row in answering(rows, question):
        for sample in row.samples:
            if text_labels(row).get("__sampled__") == "true":
                continue
            if question.span_ids and sample.span_id not in question.span_ids:
                continue
            if question.trace_ids and sample.trace_id not in question.trace_ids:
                continue
            total[tuple(reversed(sample.stack))] += sample.value
    return total


def series(rows: Iterable[ProfileRow], question: Question) -> list[tuple[tuple[str, str], ...]]:
    return sorted({tuple(sorted(text_labels(row).items())) for row in answering(rows, question)})


def points(
    rows: Iterable[ProfileRow], question: Question, grid: Grid
) -> dict[tuple[tuple[str, str], ...], dict[int, float]]:
    """Return values by group and time, going over all points of the grid."""
    found: defaultdict[tuple[tuple[str, str], ...], dict[int, float]] = defaultdict(dict)
    whole = Question(start_ms=-(10**12), end_ms=10**15, matchers=question.matchers)
    for row in answering(rows, whole):
        labels = text_labels(row)
        group = tuple((name, labels[name]) for name in grid.group_by if name in labels)
        for end in range(grid.start_ms, grid.end_ms + 1, grid.step_ms):
            if end - grid.step_ms < row.time_ns // 1_000_000 <= end:
                found[group].setdefault(end, [])  # type: ignore[arg-type]
                found[group][end].append(sum(sample.value for sample in row.samples))  # type: ignore[attr-defined]
    mean = grid.aggregation is Aggregation.AVERAGE
    return {
        group: {end: sum(own) / (len(own) if mean else 1) for end, own in values.items()}  # type: ignore[arg-type, call-overload]
        for group, values in found.items()
    }


def equal(name: str, value: str) -> Matcher:
    return Matcher(name, MatchOperator.EQUAL, value)


def without_types(blocks: Iterable[QueryBlock]) -> list[QueryBlock]:
    """Return the blocks as old writers leave them: only opening a dataset tells which types it has."""
    from dataclasses import replace

    return [
        replace(block, datasets=tuple(replace(each, profile_types=None) for each in block.datasets)) for block in blocks
    ]
