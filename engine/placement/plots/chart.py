"""Line charts as SVG text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 56, 40
TICKS = 4
LEGEND_WIDTH = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A value per x value of the chart; ``is_step`` draws a step line, for counts."""

    label: str
    colour: str
    values: Sequence[float]
    is_step: bool = False


def line_chart(title: str, x_label: str, x_values: Sequence[float], lines: Sequence[Line]) -> str:
    """Return the chart as SVG; all lines share one y scale, which starts at 0."""
    top = max((value for line in lines for value in line.values), default=0.0) or 1.0
    right = max(x_values, default=0.0) or 1.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12" fill="#333">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="18" font-weight="bold">{escape(title)}</text>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>',
        *_grid(right, top),
    ]
    for number, line in enumerate(lines):
        x = LEFT + number * LEGEND_WIDTH
        parts.append(f'<text x="{x}" y="40" fill="{line.colour}">{escape(line.label)}</text>')
        parts.append(_polyline(x_values, line, right, top))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _grid(right: float, top: float) -> list[str]:
    parts = []
    for tick in range(TICKS + 1):
        share = tick / TICKS
        y, x = _y(share), _x(share)
        parts += [
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>',
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share * top:.4g}</text>',
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{share * right:.4g}</text>',
        ]
    return parts


def _polyline(x_values: Sequence[float], line: Line, right: float, top: float) -> str:
    points: list[tuple[float, float]] = []
    for x, value in zip(x_values, line.values, strict=True):
        if line.is_step and points and points[-1][1] != value:
            points.append((x, points[-1][1]))
        points.append((x, value))
    text = " ".join(f"{_x(x / right):.1f},{_y(value / top):.1f}" for x, value in points)
    return f'<polyline points="{text}" fill="none" stroke="{line.colour}" stroke-width="1.5"/>'


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
