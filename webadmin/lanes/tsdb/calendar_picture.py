"""SVG calendar of a tenant's intervals: one row per range, one cell per interval, coloured by state."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from engine.core.formatting import format_duration, format_time
from engine.lanes.tsdb.plan import reasons
from engine.lanes.tsdb.plan.model import SlotProgress, SlotState
from engine.lanes.tsdb.plan.slots import calendar

COLOURS = {
    SlotState.PARKED: "#a3214f",
    SlotState.TOO_LARGE: "#7a3f9a",
    SlotState.DONE: "#2f8f5b",
    SlotState.RUNNING: "#2f6fc4",
    SlotState.READY: "#c4541b",
    SlotState.WAITING: "#d9a441",
    SlotState.EMPTY: "transparent",
}
MEANINGS = {
    SlotState.PARKED: "a job of it failed too often and waits for a person",
    SlotState.TOO_LARGE: "its group would have to be cut into parts, which this bucket does not allow",
    SlotState.DONE: "nothing left to do",
    SlotState.RUNNING: "being merged",
    SlotState.READY: "to be merged",
    SlotState.WAITING: "waits for time or for blocks",
    SlotState.EMPTY: "no block",
}
WIDTH, ROW, GAP, LABEL = 960, 26, 8, 52
CELLS_MAX = 240
"""Maximum number of intervals of the smallest range that are drawn, newest first: 20 days of 2 h."""


def calendar_picture(slots: Sequence[SlotProgress], ranges_ms: Sequence[int], newest_ms: int) -> str:
    """Return the newest intervals up to ``newest_ms``; a larger range is drawn below the intervals it consists of."""
    last_ms = newest_ms
    first_ms = max(min((slot.start_ms for slot in slots), default=last_ms), last_ms - CELLS_MAX * ranges_ms[0])
    first_ms -= first_ms % ranges_ms[-1]
    last_ms += ranges_ms[-1] - last_ms % ranges_ms[-1]
    scale = (WIDTH - LABEL) / (last_ms - first_ms)
    height = len(ranges_ms) * (ROW + GAP) + 22
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-size="11" fill="currentColor" '
        'role="img" aria-label="Intervals and what is to be done in each">'
    ]
    for row, range_ms in enumerate(ranges_ms):
        top = row * (ROW + GAP)
        parts.append(f'<text x="0" y="{top + ROW / 2 + 4:.0f}">{escape(format_duration(range_ms))}</text>')
        cells = calendar(slots, range_ms, first_ms=first_ms, last_ms=last_ms - 1)
        parts += [_cell(cell, first_ms, scale, top) for cell in cells]
    for share in range(5):
        at_ms = first_ms + (last_ms - first_ms) * share // 4
        anchor = ("start", "middle", "middle", "middle", "end")[share]
        x = LABEL + (at_ms - first_ms) * scale
        day = format_time(at_ms).removesuffix(" UTC")
        parts.append(f'<text x="{x:.0f}" y="{height - 5}" text-anchor="{anchor}">{escape(day)}</text>')
    return "".join([*parts, "</svg>"])


def legend() -> list[tuple[str, str]]:
    """Return the legend: pairs of colour and meaning."""
    return [(f"{state.value}: {MEANINGS[state]}", COLOURS[state]) for state in COLOURS]


def _cell(cell: SlotProgress, first_ms: int, scale: float, top: int) -> str:
    x, width = LABEL + (cell.start_ms - first_ms) * scale, cell.range_ms * scale
    title = f"{reasons.slot_text(cell.range_ms, cell.start_ms)}: {cell.state.value}"
    if cell.blocks:
        title += f", {cell.blocks} blocks, {cell.waiting} of them waiting, {cell.compactions} compactions"
    label = str(cell.compactions) if cell.compactions and width > 14 else ""
    text = (
        f'<text x="{x + width / 2:.1f}" y="{top + ROW / 2 + 4:.0f}" text-anchor="middle" fill="#fff">{label}</text>'
        if label
        else ""
    )
    return (
        f'<g><title>{escape(title)}</title><rect x="{x:.2f}" y="{top}" width="{max(width - 1, 0.5):.2f}" '
        f'height="{ROW}" rx="2" fill="{COLOURS[cell.state]}" stroke="currentColor" stroke-opacity=".2"/>{text}</g>'
    )
