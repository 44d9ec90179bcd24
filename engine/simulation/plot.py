"""The backlog over time as an SVG chart: queued blocks, and the waiting time of the first job to plan."""

from __future__ import annotations

from collections.abc import Sequence

from engine.simulation.simulate import Sample

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 64, 40, 40
TICKS = 4
BLOCKS_COLOUR, WAIT_COLOUR = "#1f6fb4", "#c4541b"


def backlog_plot(samples: Sequence[Sample]) -> str:
    """Return the chart; blocks on the left axis, seconds of waiting on the right axis."""
    hours = [sample.at_s / 3600 for sample in samples]
    blocks = [float(sample.queued_blocks) for sample in samples]
    waits = [sample.wait_s for sample in samples]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12" fill="#333">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="20" fill="{BLOCKS_COLOUR}">queued blocks</text>',
        f'<text x="{WIDTH - RIGHT}" y="20" text-anchor="end" fill="{WAIT_COLOUR}">first job waits (s)</text>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">hours</text>',
        *_grid(_top(blocks), _top(waits), max(hours, default=0.0)),
        _line(hours, blocks, BLOCKS_COLOUR),
        _line(hours, waits, WAIT_COLOUR),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _grid(blocks_top: float, waits_top: float, hours_top: float) -> list[str]:
    parts = []
    for tick in range(TICKS + 1):
        share = tick / TICKS
        y = HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
        x = LEFT + share * (WIDTH - LEFT - RIGHT)
        parts += [
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>',
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share * blocks_top:.4g}</text>',
            f'<text x="{WIDTH - RIGHT + 6}" y="{y + 4:.1f}">{share * waits_top:.4g}</text>',
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{share * hours_top:.3g}</text>',
        ]
    return parts


def _line(hours: Sequence[float], values: Sequence[float], colour: str) -> str:
    right, top = max(hours, default=0.0) or 1.0, _top(values)
    points = " ".join(
        f"{LEFT + hour / right * (WIDTH - LEFT - RIGHT):.1f},"
        f"{HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM):.1f}"
        for hour, value in zip(hours, values, strict=True)
    )
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _top(values: Sequence[float]) -> float:
    return max(values, default=0.0) or 1.0
