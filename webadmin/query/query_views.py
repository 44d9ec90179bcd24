"""Answers to questions as people read them on a terminal: tables, an indented tree, and a line that says the cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from engine.formats.profile_block.model import Labels
from engine.query.flame.top_table import FunctionTotals
from engine.query.flame.tree import FlameTree
from engine.query.model import QueryReport
from engine.query.select_points import PointSeries
from webadmin.adminkit.formatting import NOTHING, count_text, counted, moment_text, size_text

NANOSECONDS = (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000))
LINES_MAX = 2_000
"""More lines of a tree nobody reads; a larger cut shows less."""
DEPTH_SHOWN = 60
"""Deeper than this a line is not indented further."""


def value_text(value: float, unit: str) -> str:
    """Return a value with its unit: times and sizes in units that fit, counts with thousands apart."""
    if unit == "bytes":
        return size_text(int(value))
    if unit == "nanoseconds":
        for name, size in NANOSECONDS:
            if abs(value) >= size:
                return f"{value / size:.2f} {name}"
        return f"{value:.0f} ns"
    return count_text(int(value)) if value == int(value) else f"{value:,.2f}"


def share_text(part: int, whole: int) -> str:
    """Return a share in percent."""
    return f"{100 * part / whole:.1f} %" if whole else NOTHING


def top_view(rows: Sequence[FunctionTotals], total: int, unit: str, limit: int) -> Table:
    """Return the functions with the largest own values."""
    table = Table(title=f"{counted(len(rows), 'function')}, {value_text(total, unit)} in all")
    for header in ("self", "self %", "total", "total %"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("function", overflow="fold")
    for row in rows[:limit]:
        table.add_row(
            value_text(row.own, unit),
            share_text(row.own, total),
            value_text(row.total, unit),
            share_text(row.total, total),
            escape(row.name),
        )
    return table


def tree_view(tree: FlameTree, unit: str, cut: float) -> list[Text]:
    """Return a tree line by line, the larger branches first, without what is below ``cut`` percent of everything.

    What is left out is said where it is missing, so that the lines below another add up to it.
    """
    nodes = tree.nodes()
    totals, starts = nodes.totals.tolist(), nodes.child_starts.tolist()
    least = max(1.0, totals[0] * cut / 100)
    lines: list[Text] = []
    waiting: list[tuple[int, int, int]] = [(0, 0, 0)]  # node (-1: what was left out), depth, value
    while waiting and len(lines) < LINES_MAX:
        node, depth, hidden = waiting.pop()
        indent = "  " * min(depth, DEPTH_SHOWN)
        value = hidden if node < 0 else totals[node]
        name = "total" if node == 0 else "(smaller)"
        if node > 0:
            name = nodes.names[nodes.name_refs[node]].decode(errors="replace")
        lines.append(Text(f"{share_text(value, totals[0]):>8} {value_text(value, unit):>12}  {indent}{name}"))
        if node < 0:
            continue
        children = range(starts[node], starts[node + 1])
        shown = sorted((child for child in children if totals[child] >= least), key=lambda child: totals[child])
        small = sum(totals[child] for child in children) - sum(totals[child] for child in shown)
        if small:
            waiting.append((-1, depth + 1, small))
        waiting += [(child, depth + 1, 0) for child in shown]
    if waiting:
        lines.append(Text(f"and more than {LINES_MAX} lines: cut at a larger share"))
    return lines


def points_view(series: Sequence[PointSeries], unit: str) -> Table:
    """Return series of points, a row each point."""
    table = Table(title=counted(len(series), "series", "series"))
    for header in ("labels", "until (UTC)", "value"):
        table.add_column(header, justify="right" if header == "value" else "left", overflow="fold")
    for each in series:
        name = escape(labels_text(each.labels)) or "everything"
        for point in each.points:
            table.add_row(name, moment_text(point.time_ms), value_text(point.value, unit))
            name = ""
    return table


def series_view(label_sets: Sequence[Labels]) -> Table:
    """Return the label sets of series, one a row."""
    table = Table(title=counted(len(label_sets), "series", "series"))
    table.add_column("labels", overflow="fold")
    for labels in label_sets:
        table.add_row(escape(labels_text(labels)) or NOTHING)
    return table


def labels_text(labels: Labels) -> str:
    """Return labels as a selector would name them, without braces."""
    return ", ".join(f'{name}="{value}"' for name, value in labels)


def report_lines(report: QueryReport) -> list[str]:
    """Return what an answer took in one line, and a line for each thing that it is without."""
    cost = report.cost
    phases = ", ".join(f"{name} {1000 * seconds:.0f}" for name, seconds in cost.phases.items())
    lines = [
        f"{counted(cost.objects_opened, 'object')}, {counted(cost.requests, 'request')}, {size_text(cost.bytes_read)}, "
        f"{counted(cost.rows_read, 'row')}, {1000 * cost.seconds:.0f} ms ({phases})"
    ]
    return [*lines, *(f"PARTIAL: without {damage}" for damage in report.damage)]


def report_json(report: QueryReport) -> dict[str, Any]:
    """Return a report as JSON has it; times are milliseconds."""
    cost = report.cost
    return {
        "objects_opened": cost.objects_opened,
        "datasets_read": cost.datasets_read,
        "requests": cost.requests,
        "bytes_read": cost.bytes_read,
        "rows_read": cost.rows_read,
        "ms": 1000 * cost.seconds,
        "phases_ms": {name: 1000 * seconds for name, seconds in cost.phases.items()},
        "damage": [
            {
                "object": damage.key,
                "tenant": damage.tenant,
                "service": damage.service,
                "code": damage.error.code,
                "reason": str(damage.error),
            }
            for damage in report.damage
        ],
    }


def points_json(series: Iterable[PointSeries]) -> list[dict[str, Any]]:
    """Return series of points as JSON has them; times are unix milliseconds."""
    return [
        {"labels": dict(each.labels), "points": [[point.time_ms, point.value] for point in each.points]}
        for each in series
    ]
