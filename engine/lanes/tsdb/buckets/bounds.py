"""What the numbers and words of a ``meta.json`` may be: far beyond every real block, and far from overflowing whoever
stores them or reckons with them."""

from __future__ import annotations

from dataclasses import asdict

from engine.core.errors import LimitExceeded
from engine.formats.prometheus.meta import SECTION, BlockMeta
from engine.lanes.tsdb.buckets.labels import resolution_ms
from engine.lanes.tsdb.buckets.sections import origin

COUNT_MAX = 1 << 40
LEVEL_MAX = 1 << 15
TIME_MAX_MS = 1 << 53
"""To both sides of 1970, and the length of an interval."""
RESOLUTION_MAX_MS = 1 << 40
HINTS_MAX = 100
HINT_LENGTH_MAX = 200


def check_bounds(meta: BlockMeta) -> None:
    """Refuse what no compactor has written. Raises LimitExceeded, and BadObject as ``origin`` does."""
    for name, count in asdict(meta.stats).items():
        _check(f"stats: {name}", count, COUNT_MAX)
    _check("compaction.level", meta.compaction.level, LEVEL_MAX)
    _check("minTime", abs(meta.min_time_ms), TIME_MAX_MS)
    _check("maxTime", abs(meta.max_time_ms), TIME_MAX_MS)
    _check("thanos.extensions: time_range", origin(meta).range_ms, TIME_MAX_MS)
    _check("thanos.downsample.resolution", resolution_ms(meta), RESOLUTION_MAX_MS)
    _check("the number of hints", len(meta.compaction.hints), HINTS_MAX)
    for hint in meta.compaction.hints:
        _check("the length of a hint", len(hint), HINT_LENGTH_MAX)
        if "\0" in hint:
            raise LimitExceeded(SECTION, -1, "a hint has a NUL in it")


def _check(what: str, number: int, most: int) -> None:
    if number > most:
        raise LimitExceeded(SECTION, -1, f"{what} is beyond {most}")
