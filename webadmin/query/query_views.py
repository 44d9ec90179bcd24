"""Terminal output and JSON of query results: tables, an indented tree, and a cost report."""

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
"""Maximum lines of a tree; a higher cut shows fewer."""
DEPTH_SHOWN = 60
"""Maximum indentation, in levels."""


def value_text(value: float, unit: str) -> str:
    """Return a value with a suitable unit for times and sizes, and with thousands separators for counts."""
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
    """Return a table of the functions with the largest own values."""
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
    """Return a tree as lines, larger branches first, without nodes below ``cut`` percent of the total.

    The sum of omitted children has a line of its own, so that children add up to their parent.
    """
    nodes = tree.nodes()
    totals, starts = nodes.totals.tolist(), nodes.child_starts.tolist()
    least = max(1.0, totals[0] * cut / 100)
    lines: list[Text] = []
    waiting: list[tuple[int, int, int]] = [(0, 0, 0)]  # Node (-1: omitted children), depth, value.
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
    """Return a table of points, one row per point."""
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
    """Return a table of the label sets of series."""
    table = Table(title=counted(len(label_sets), "series", "series"))
    table.add_column("labels", overflow="fold")
    for labels in label_sets:
        table.add_row(escape(labels_text(labels)) or NOTHING)
    return table


def labels_text(labels: Labels) -> str:
    """Return labels in selector syntax without braces."""
    return ", ".join(f'{name}="{value}"' for name, value in labels)


def report_lines(report: QueryReport) -> list[str]:
    """Return a line with the cost of a query, and one for each gap in its result."""
    cost = report.cost
    phases = ", ".join(f"{name} {1000 * seconds:.0f}" for name, seconds in cost.phases.items())
    lines = [
        f"{counted(cost.objects_opened, 'object')}, {counted(cost.requests, 'request')}, {size_text(cost.bytes_read)}, "
        f"{counted(cost.rows_read, 'row')}, {1000 * cost.seconds:.0f} ms ({phases})"
    ]
    return [*lines, *(f"PARTIAL: without {damage}" for damage in report.damage)]


def report_json(report: QueryReport) -> dict[str, Any]:
    """Return a report for JSON; times are in milliseconds."""
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
    """Return series of points for JSON; times are unix milliseconds."""
    return [
        {"labels": dict(each.labels), "points": [[point.time_ms, point.value] for point in each.points]}
        for each in series
    ]
