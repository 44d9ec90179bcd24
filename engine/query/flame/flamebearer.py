"""The JSON document of the older GET API: levels, names and units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.query.flame.levels import FlameGraph, FlameGraphDiff

VERSION = 1
CPU_RATE = 1_000_000_000
DEFAULT_RATE = 100
_COUNTED = frozenset({"inuse_objects", "alloc_objects", "goroutine", "samples"})


class Units(NamedTuple):
    """The unit of values, and the number of them per second (or per unit, if they are not times)."""

    units: str
    sample_rate: int


def units_of(sample_type: str, sample_unit: str) -> Units:
    """Return the units that viewers of this API expect for a sample type."""
    if sample_type == "cpu":
        return Units("samples", CPU_RATE)
    return Units("objects" if sample_type in _COUNTED else sample_unit, DEFAULT_RATE)


def flamebearer(
    graph: FlameGraph | FlameGraphDiff,
    sample_type: str,
    sample_unit: str,
    *,
    timeline: Mapping[str, Any] | None = None,
    groups: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the document of a graph; values are in the unit of the samples, timelines are the caller's."""
    is_diff = isinstance(graph, FlameGraphDiff)
    units, sample_rate = units_of(sample_type, sample_unit)
    document: dict[str, Any] = {
        "version": VERSION,
        "flamebearer": {
            "names": graph.names,
            "levels": graph.levels,
            "numTicks": graph.total,
            "maxSelf": graph.max_self,
        },
        "metadata": {
            "format": "double" if is_diff else "single",
            "spyName": "",
            "sampleRate": sample_rate,
            "units": units,
            "name": sample_type,
        },
        "timeline": timeline,
        "groups": groups,
        "heatmap": None,
    }
    if isinstance(graph, FlameGraphDiff):
        ticks = {"leftTicks": graph.left_total, "rightTicks": graph.right_total}
        document |= {name: value for name, value in ticks.items() if value}
    return document
