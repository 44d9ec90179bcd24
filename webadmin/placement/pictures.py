"""Ring, subrings and load of the shards as SVG. Pure: a ring and numbers in, text out.

Text has the page's colour, so that it is readable in both themes. A ring of very many shards is drawn in pieces of
several.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from engine.placement.rate import format_rate
from engine.placement.ring import Ring
from engine.placement.subrings import Subring

PIECES_MAX = 512
SIZE = 420
CENTRE = SIZE / 2
RINGS = {"shards": (150.0, 190.0), "tenant": (128.0, 142.0), "dataset": (108.0, 122.0)}
"""Inner and outer radius."""
TENANT_COLOUR, DATASET_COLOUR = "#8a6d3b", "#c4541b"
CELL, CELLS_PER_ROW = 26, 16
LEGEND_MAX = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A dataset's subrings, to be drawn inside the ring; ``pinned`` positions replace the dataset's."""

    tenant: Subring
    dataset: Subring
    pinned: Sequence[int] = ()


def colour_of(number: int) -> str:
    """Return a colour that differs from its neighbours: steps of the golden angle."""
    return f"hsl({number * 137.508 % 360:.0f} 52% {48 + number % 3 * 8}%)"


def ring_picture(ring: Ring, stretch: Stretch | None = None) -> str:
    """Return the picture of the ring: the host of each shard, and inside it the subrings of a tenant and a dataset."""
    owners = ring.tables.get("", ())
    colours = {instance.id: colour_of(number) for number, instance in enumerate(ring.instances)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE}" font-size="14" '
        f'fill="currentColor" role="img" aria-label="Ring of {ring.shards} shards and their hosts">'
    ]
    for first, last in pieces(ring.shards):
        owner = owners[first]
        title = f"{_shards(first, last)}: {owner}"
        parts.append(_arc("shards", first, last, ring.shards, colours[owner], title))
    if stretch is not None:
        parts += [_position("tenant", position, ring.shards, TENANT_COLOUR) for position in _some(stretch.tenant)]
        inner = [*stretch.pinned] or _some(stretch.dataset)
        parts += [_position("dataset", position, ring.shards, DATASET_COLOUR) for position in inner]
    parts.append(_text(CENTRE, CENTRE - 4, f"{ring.shards} shards", bold=True, middle=True))
    parts.append(_text(CENTRE, CENTRE + 14, f"{len(ring.instances)} instances", middle=True))
    return "".join([*parts, "</svg>"])


def ring_legend(ring: Ring, stretch: Stretch | None = None) -> list[tuple[str, str]]:
    """Return the legend of the ring's picture; of a large fleet only the first instances."""
    legend = [(instance.id, colour_of(number)) for number, instance in enumerate(ring.instances[:LEGEND_MAX])]
    if len(ring.instances) > LEGEND_MAX:
        legend.append((f"and {len(ring.instances) - LEGEND_MAX} more instances", "transparent"))
    if stretch is not None:
        legend += [("the tenant's shards", TENANT_COLOUR), ("the dataset's shards", DATASET_COLOUR)]
    return legend


def heat_picture(ring: Ring, loads: Mapping[int, int]) -> str:
    """Return a heat map with a cell per shard, darker for more writes; ``loads`` are bytes/s by shard (from 1)."""
    owners = ring.tables.get("", ())
    cells = [(first, last, sum(loads.get(p + 1, 0) for p in range(first, last))) for first, last in pieces(ring.shards)]
    top = max((load for _, _, load in cells), default=0) or 1
    rows = math.ceil(len(cells) / CELLS_PER_ROW)
    width, height = CELLS_PER_ROW * CELL + 2, rows * CELL + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="9" fill="currentColor" '
        'role="img" aria-label="Write rate of each shard">'
    ]
    for place, (first, last, load) in enumerate(cells):
        x, y = place % CELLS_PER_ROW * CELL + 1, place // CELLS_PER_ROW * CELL + 1
        share = load / top
        title = f"{_shards(first, last)}: {format_rate(load)}, {owners[first]}"
        parts.append(
            f'<g><title>{escape(title)}</title><rect x="{x}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" rx="3" '
            f'fill="#c4541b" fill-opacity="{0.06 + 0.94 * share:.3f}" stroke="currentColor" stroke-opacity=".15"/>'
            f'<text x="{x + CELL / 2 - 1}" y="{y + CELL / 2 + 2}" text-anchor="middle">{first + 1}</text></g>'
        )
    parts.append(_text(2, height - 14, "0"))
    parts += [
        f'<rect x="{14 + 12 * step}" y="{height - 24}" width="12" height="12" fill="#c4541b" '
        f'fill-opacity="{0.06 + 0.94 * step / 9:.3f}"/>'
        for step in range(10)
    ]
    parts.append(_text(140, height - 14, f"{format_rate(top if any(loads.values()) else 0)}"))
    return "".join([*parts, "</svg>"])


def pieces(shards: int) -> list[tuple[int, int]]:
    """Return the positions [first, last) of each piece that is drawn."""
    count = min(shards, PIECES_MAX)
    return [(shards * piece // count, shards * (piece + 1) // count) for piece in range(count)]


def _some(subring: Subring) -> list[int]:
    """Return positions of a subring, few enough to draw."""
    step = max(1, math.ceil(subring.size() / PIECES_MAX))
    return [subring.at(index) for index in range(0, subring.size(), step)]


def _position(ring: str, position: int, shards: int, colour: str) -> str:
    return _arc(ring, position, position + max(1, shards // PIECES_MAX), shards, colour, f"shard {position + 1}")


def _arc(ring: str, first: int, last: int, shards: int, colour: str, title: str) -> str:
    inner, outer = RINGS[ring]
    if last - first >= shards:  # an arc from a point to itself is empty
        middle = (inner + outer) / 2
        circle = f'<circle cx="{CENTRE}" cy="{CENTRE}" r="{middle}" fill="none" stroke="{colour}"'
        return f'{circle} stroke-width="{outer - inner}"><title>{escape(title)}</title></circle>'
    start, end = first / shards * math.tau, last / shards * math.tau
    gap = min(0.006, (end - start) / 5)
    big = int(end - start > math.pi)
    points = [
        _point(outer, start + gap),
        _point(outer, end - gap),
        _point(inner, end - gap),
        _point(inner, start + gap),
    ]
    path = f"M{points[0]}A{outer},{outer} 0 {big} 1 {points[1]}L{points[2]}A{inner},{inner} 0 {big} 0 {points[3]}Z"
    return f'<path d="{path}" fill="{colour}"><title>{escape(title)}</title></path>'


def _point(radius: float, angle: float) -> str:
    return f"{CENTRE + radius * math.sin(angle):.2f},{CENTRE - radius * math.cos(angle):.2f}"


def _text(x: float, y: float, text: str, *, bold: bool = False, middle: bool = False) -> str:
    more = (' font-weight="600"' if bold else "") + (' text-anchor="middle"' if middle else "")
    return f'<text x="{x:.0f}" y="{y:.0f}"{more}>{escape(text)}</text>'


def _shards(first: int, last: int) -> str:
    return f"shard {first + 1}" if last - first <= 1 else f"shards {first + 1} to {last}"
